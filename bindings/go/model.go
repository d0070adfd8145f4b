package inlay

import (
	"context"
	"fmt"
	"runtime"

	"inlay.dev/go/inlay/internal/capi"
)

// KVType is how a model's KV cache keeps its numbers.
type KVType int32

// KVAuto is F32 on CPU, and on CUDA the type of most weights.
const (
	KVAuto KVType = 0
	KVF32  KVType = 1
	KVF16  KVType = 2
	KVBF16 KVType = 3
	KVI8   KVType = 4
	KVF8   KVType = 5
	KVQ4   KVType = 6
)

// BlockSelection is how blocks of keys are chosen where a query does not see all of them.
type BlockSelection int32

// The ways; the zero value sees all.
const (
	BlockSelectionNone   BlockSelection = 0
	BlockSelectionBounds BlockSelection = 1 // by the least and the most of each dimension of their keys
	BlockSelectionKMeans BlockSelection = 2 // by two centroids of their keys
	BlockSelectionLSH    BlockSelection = 3 // by 128-bit hashes of their keys
)

// LoadStage is what a load is at.
type LoadStage int32

// The stages, in order.
const (
	LoadConfig    LoadStage = 0
	LoadTokenizer LoadStage = 1
	LoadWeights   LoadStage = 2
	LoadReady     LoadStage = 3
)

// ModelOptions of LoadModel. The zero value has the defaults.
type ModelOptions struct {
	VocabOnly       bool // only tokenizer and chat template
	ReadWeights     bool // into memory, instead of mapping the files, which then must not be truncated
	KV              KVType
	KVBlockSize     int    // tokens; a power of two from 8 to 256; 0: 16
	MaxContext      int    // cap on a session's tokens; 0: the model's own
	KVBudget        uint64 // bytes of the KV cache; 0: room for 4 full contexts, within a quarter of the memory and the budget
	Kernels         string // forces kernels, for tests and measurements
	HostCache       uint64 // bytes of host memory for what the KV cache gives up
	DiskCacheFolder string // below host memory: a folder for this model alone
	DiskCache       uint64 // bytes that its files may take
	// Sparse attention by position, on CPU: "window=1024,global=64"; inlay.h lists what there is. "": dense.
	AttentionPattern string
	// Sparse attention by content, on CPU: how blocks of keys are chosen for each query, and how many tokens it sees of them, a
	// multiple of 16 from 64.
	BlockSelection BlockSelection
	SelectedTokens int
	// Bytes of a GPU's memory for the experts of all layers; those it does not hold lie in host memory. 0: all are on the GPU.
	ExpertDeviceBytes uint64
	// Progress is called while loading; false cancels, and a panic in it does too. It must not call methods of the engine.
	Progress func(stage LoadStage, fraction float64) bool
}

// Model has the weights, tokenizer and chat template of one model.
type Model struct {
	handle handle
	engine *Engine
}

// LoadModel loads a Hugging Face directory, a .gguf file, or "random:CONFIG_DIR[?dtype=bf16]", and returns when that is done;
// when ctx is done before, at the next report of progress. Close the model. options may be nil.
func (e *Engine) LoadModel(ctx context.Context, path string, options *ModelOptions) (*Model, error) {
	defer runtime.KeepAlive(e)
	number, err := e.core.handle.get()
	if err != nil {
		return nil, err
	}
	if options == nil {
		options = &ModelOptions{}
	}
	if err := ctx.Err(); err != nil {
		return nil, contextError(err, "before loading")
	}
	o := capi.NewInlay_model_options()
	defer capi.DeleteInlay_model_options(o)
	capi.Inlay_model_options_init_sized(o, capi.SizeofModelOptions)
	var memory capi.Memory
	defer memory.Free()
	var n narrow
	o.SetVocab_only(flag(options.VocabOnly))
	o.SetWeights(flag(options.ReadWeights))
	o.SetKv_type(int32(options.KV))
	o.SetKv_block_size(n.uint32("KVBlockSize", options.KVBlockSize))
	o.SetMax_context(n.uint32("MaxContext", options.MaxContext))
	o.SetKv_budget_bytes(options.KVBudget)
	if options.Kernels != "" {
		o.SetKernels(memory.String(n.text("Kernels", options.Kernels)))
	}
	o.SetHost_cache_bytes(options.HostCache)
	if options.DiskCacheFolder != "" {
		o.SetDisk_cache_folder(memory.String(n.text("DiskCacheFolder", options.DiskCacheFolder)))
	}
	o.SetDisk_cache_bytes(options.DiskCache)
	o.SetBlock_selection(int32(options.BlockSelection))
	o.SetSelected_tokens(n.uint32("SelectedTokens", options.SelectedTokens))
	o.SetExpert_device_bytes(options.ExpertDeviceBytes)
	if options.AttentionPattern != "" {
		o.SetAttention_pattern(memory.String(n.text("AttentionPattern", options.AttentionPattern)))
	}
	n.text("path", path)
	if n.err != nil {
		return nil, n.err
	}
	watched := watchProgress(ctx, options.Progress)
	defer watched.callback.Release()
	o.SetProgress(watched.callback.Function)
	o.SetProgress_user(watched.callback.User)
	var model, object uintptr
	err = check(capi.Inlay_model_load(number, path, o, &model, &object), &object)
	if err := watched.explain(err); err != nil {
		return nil, err
	}
	m := &Model{engine: e}
	m.handle.set("model", model)
	runtime.SetFinalizer(m, func(m *Model) { capi.Inlay_model_release(m.handle.take()) })
	return m, nil
}

// watched joins a context and a progress function into the one callback that the library knows.
type watched struct {
	ctx      context.Context
	callback capi.Callback
	panicked any
}

func watchProgress(ctx context.Context, progress func(LoadStage, float64) bool) *watched {
	w := &watched{ctx: ctx}
	w.callback = capi.ProgressCallback(func(stage int32, fraction float32) bool {
		if ctx.Err() != nil {
			return false
		}
		if progress == nil {
			return true
		}
		defer func() {
			if value := recover(); value != nil {
				w.panicked = value
			}
		}()
		return progress(LoadStage(stage), float64(fraction))
	})
	return w
}

// explain says why the library was told to cancel.
func (w *watched) explain(err error) error {
	if e, ok := err.(*Error); ok && e.Code == ErrCancelled {
		switch {
		case w.panicked != nil:
			e.Message = fmt.Sprintf("the progress function panicked: %v", w.panicked)
		case w.ctx.Err() != nil:
			return contextError(w.ctx.Err(), e.Message)
		}
	}
	return err
}

// Close gives the model back: its memory is free when its last session is closed. It returns nil, also when it was closed before.
func (m *Model) Close() error {
	runtime.SetFinalizer(m, nil)
	capi.Inlay_model_release(m.handle.take())
	return nil
}

// NewSession makes an empty one, which costs nothing until its first request. Close it.
func (m *Model) NewSession() (*Session, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return nil, err
	}
	var session, object uintptr
	if err := check(capi.Inlay_session_create(number, &session, &object), &object); err != nil {
		return nil, err
	}
	return newSession(m, session), nil
}

// RequestDefaults is a Request with the sampling settings of the model's generation_config.json.
func (m *Model) RequestDefaults() (Request, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return Request{}, err
	}
	o := capi.NewInlay_request_options()
	defer capi.DeleteInlay_request_options(o)
	capi.Inlay_request_options_init_sized(o, capi.SizeofRequestOptions)
	if err := call(func(object *uintptr) int32 { return capi.Inlay_model_request_options(number, o, object) }); err != nil {
		return Request{}, err
	}
	return requestOf(o), nil
}

// ModelInfo describes a model.
type ModelInfo struct {
	Architecture     string
	Layers           int
	VocabSize        int
	HiddenSize       int
	MaxContext       int
	Parameters       uint64
	WeightBytes      uint64
	BytesPerDecode   uint64 // weights read for one token at batch 1
	KVBytesPerToken  uint64
	KVCapacityTokens int
	BOS, EOS         int32 // -1: none
	HasTokenizer     bool
	HasChatTemplate  bool
	// EmbeddingSize is the length of what EmbeddingDefault gives, through the files' Dense modules; with another pooling it is
	// HiddenSize. 0: the files ask for what is not supported.
	EmbeddingSize int
}

// Info describes the model.
func (m *Model) Info() (ModelInfo, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return ModelInfo{}, err
	}
	info := capi.NewInlay_model_info()
	defer capi.DeleteInlay_model_info(info)
	capi.Inlay_model_info_init_sized(info, capi.SizeofModelInfo)
	if err := call(func(object *uintptr) int32 { return capi.Inlay_model_get_info(number, info, object) }); err != nil {
		return ModelInfo{}, err
	}
	return ModelInfo{
		Architecture:     info.GetArchitecture(),
		Layers:           int(info.GetNum_layers()),
		VocabSize:        int(info.GetVocab_size()),
		HiddenSize:       int(info.GetHidden_size()),
		MaxContext:       int(info.GetMax_context()),
		Parameters:       info.GetNum_parameters(),
		WeightBytes:      info.GetWeight_bytes(),
		BytesPerDecode:   info.GetBytes_per_decode(),
		KVBytesPerToken:  info.GetKv_bytes_per_token(),
		KVCapacityTokens: int(info.GetKv_capacity_tokens()),
		BOS:              info.GetBos_token(),
		EOS:              info.GetEos_token(),
		HasTokenizer:     info.GetHas_tokenizer() != 0,
		HasChatTemplate:  info.GetHas_chat_template() != 0,
		EmbeddingSize:    int(info.GetEmbedding_size()),
	}, nil
}

// Inspect tells what a model's path holds without loading weights: JSON with architecture, configuration, tensors, formats and
// the memory that each backend needs.
func Inspect(path string) ([]byte, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	if err := checkText("path", path); err != nil {
		return nil, err
	}
	return bytesOf(func(buffer, object *uintptr) int32 { return capi.Inlay_model_inspect(path, buffer, object) })
}

// TextFlags say how text becomes tokens, and the way back.
type TextFlags uint32

// The flags.
const (
	AddSpecial   TextFlags = 1 // what the tokenizer puts around a text (BOS, EOS)
	ParseSpecial TextFlags = 2 // text that spells a special token becomes that token; leave it out for text that is not trusted
	SkipSpecial  TextFlags = 4 // Detokenize: leave special tokens out
)

// Tokenize makes tokens of a text; what is no UTF-8 is read as U+FFFD. ErrUnsupported when the model has no tokenizer.
func (m *Model) Tokenize(text string, flags TextFlags) ([]int32, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return nil, err
	}
	return readTokens(len(text)/2+16, func(tokens []int32, count *int, object *uintptr) int32 {
		return capi.Inlay_model_tokenize(number, text, uint32(flags), tokens, count, object)
	})
}

// Detokenize makes text of tokens.
func (m *Model) Detokenize(tokens []int32, flags TextFlags) (string, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return "", err
	}
	text, err := bytesOf(func(buffer, object *uintptr) int32 {
		return capi.Inlay_model_detokenize(number, tokens, uint32(flags), buffer, object)
	})
	return string(text), err
}

// RecordStart writes all that comes in for the model, every step's plan and its tokens to a file, for Replay; it holds the
// prompts. ErrInvalidState while requests run, or one is recorded.
func (m *Model) RecordStart(path string) error {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return err
	}
	if err := checkText("path", path); err != nil {
		return err
	}
	return call(func(object *uintptr) int32 { return capi.Inlay_model_record_start(number, path, object) })
}

// RecordStop ends the recording, and says why it ended before if it did.
func (m *Model) RecordStop() error {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return err
	}
	return call(func(object *uintptr) int32 { return capi.Inlay_model_record_stop(number, object) })
}

// Replay serves a recording again and compares: a report as JSON, which inlay.h describes. No other step of the engine runs
// meanwhile.
func (m *Model) Replay(path string) ([]byte, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return nil, err
	}
	if err := checkText("path", path); err != nil {
		return nil, err
	}
	return bytesOf(func(buffer, object *uintptr) int32 { return capi.Inlay_model_replay(number, path, buffer, object) })
}
