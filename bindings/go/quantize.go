package inlay

import (
	"context"

	"inlay.dev/go/inlay/internal/capi"
)

// QuantizeMethod is how weights are rounded. All but QuantizeNearest need calibration (QuantizeImatrix: or an
// ImatrixPath).
type QuantizeMethod uint32

// The methods.
const (
	QuantizeNearest     QuantizeMethod = 0
	QuantizeImatrix     QuantizeMethod = 1
	QuantizeGPTQ        QuantizeMethod = 2
	QuantizeAWQ         QuantizeMethod = 3
	QuantizeSmoothQuant QuantizeMethod = 4
)

// QuantizeOptions of Quantize. The zero value has the defaults.
type QuantizeOptions struct {
	Threads           int      // 0: one per core
	Type              string   // "q8_0" by default; a wrong one is answered by the list
	TensorTypes       []string // "PATTERN=TYPE"; the last match counts
	NoTokenizer       bool     // leave tokenizer and chat template out
	Method            QuantizeMethod
	ActOrder          bool     // GPTQ: inputs of largest squares first
	Calibration       []string // texts such as the model is for
	SequenceTokens    int      // 0: 512
	CalibrationTokens int      // in all; 0: 65536
	Smoothing         *float32 // SmoothQuant's alpha; nil: 0.5
	ExpertBytes       *uint64  // bytes that calibration keeps of a layer's experts at a time: sums, then GPTQ's weights in float32; nil: 4 GiB
	MemoryLimit       uint64   // bytes that all of it may take beside mapped files; 0: what it needs
	ImatrixPath       string   // what llama.cpp's imatrix measured of the model, for QuantizeImatrix in calibration's place
	// Progress is called meanwhile; false cancels, and a panic in it does too.
	Progress func(stage LoadStage, fraction float64) bool
}

// Quantize writes the model at modelPath with its weights rounded to outPath, which is replaced when all is there; when ctx is
// done before, it stops at the next report of progress. The report is JSON, which inlay.h describes. options may be nil.
func Quantize(ctx context.Context, modelPath, outPath string, options *QuantizeOptions) ([]byte, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	if options == nil {
		options = &QuantizeOptions{}
	}
	if err := ctx.Err(); err != nil {
		return nil, contextError(err, "before quantising")
	}
	o := capi.NewInlay_quantize_options()
	defer capi.DeleteInlay_quantize_options(o)
	capi.Inlay_quantize_options_init_sized(o, capi.SizeofQuantizeOptions)
	var memory capi.Memory
	defer memory.Free()
	var n narrow
	o.SetNum_threads(n.int32("Threads", options.Threads))
	if options.Type != "" {
		o.SetType_name(memory.String(n.text("Type", options.Type)))
	}
	for _, pattern := range options.TensorTypes {
		n.text("TensorTypes", pattern)
	}
	o.SetTensor_types(memory.Strings(options.TensorTypes))
	o.SetNum_tensor_types(len(options.TensorTypes))
	o.SetNo_tokenizer(uint32(flag(options.NoTokenizer)))
	o.SetMethod(uint32(options.Method))
	o.SetAct_order(uint32(flag(options.ActOrder)))
	for _, text := range options.Calibration {
		n.text("Calibration", text)
	}
	o.SetCalibration(memory.Strings(options.Calibration))
	o.SetNum_calibration(len(options.Calibration))
	if options.SequenceTokens != 0 {
		o.SetSequence_tokens(n.uint32("SequenceTokens", options.SequenceTokens))
	}
	if options.CalibrationTokens != 0 {
		o.SetCalibration_tokens(n.uint32("CalibrationTokens", options.CalibrationTokens))
	}
	if options.Smoothing != nil {
		o.SetSmoothing(*options.Smoothing)
	}
	if options.ExpertBytes != nil {
		o.SetExpert_bytes(*options.ExpertBytes)
	}
	o.SetMemory_limit(options.MemoryLimit)
	if options.ImatrixPath != "" {
		o.SetImatrix_path(memory.String(n.text("ImatrixPath", options.ImatrixPath)))
	}
	n.text("modelPath", modelPath)
	n.text("outPath", outPath)
	if n.err != nil {
		return nil, n.err
	}
	watched := watchProgress(ctx, options.Progress)
	defer watched.callback.Release()
	o.SetProgress(watched.callback.Function)
	o.SetProgress_user(watched.callback.User)
	report, err := bytesOf(func(buffer, object *uintptr) int32 {
		return capi.Inlay_quantize(modelPath, outPath, o, buffer, object)
	})
	return report, watched.explain(err)
}
