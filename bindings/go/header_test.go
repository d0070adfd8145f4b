package inlay

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"inlay.dev/go/inlay/internal/capi"
)

func TestConstantsAreTheHeaders(t *testing.T) {
	for _, c := range []struct{ got, want int }{
		{int(ErrInvalidArgument), capi.INLAY_INVALID_ARGUMENT}, {int(ErrInvalidHandle), capi.INLAY_INVALID_HANDLE},
		{int(ErrInvalidState), capi.INLAY_INVALID_STATE}, {int(ErrNotFound), capi.INLAY_NOT_FOUND},
		{int(ErrUnsupported), capi.INLAY_UNSUPPORTED}, {int(ErrResourceExhausted), capi.INLAY_RESOURCE_EXHAUSTED},
		{int(ErrOutOfMemory), capi.INLAY_OUT_OF_MEMORY}, {int(ErrCancelled), capi.INLAY_CANCELLED},
		{int(ErrTimeout), capi.INLAY_TIMEOUT}, {int(ErrClosed), capi.INLAY_CLOSED}, {int(ErrIO), capi.INLAY_IO_ERROR},
		{int(ErrNumeric), capi.INLAY_NUMERIC}, {int(ErrDeviceLost), capi.INLAY_DEVICE_LOST}, {int(ErrInternal), capi.INLAY_INTERNAL},
		{int(BackendAuto), capi.INLAY_BACKEND_AUTO}, {int(BackendCPU), capi.INLAY_BACKEND_CPU}, {int(BackendCUDA), capi.INLAY_BACKEND_CUDA},
		{int(LogError) + 1, capi.INLAY_LOG_ERROR}, {int(LogWarning) + 1, capi.INLAY_LOG_WARNING},
		{int(LogInfo) + 1, capi.INLAY_LOG_INFO}, {int(LogDebug) + 1, capi.INLAY_LOG_DEBUG},
		{int(BlockSelectionNone), capi.INLAY_BLOCK_SELECTION_NONE}, {int(BlockSelectionBounds), capi.INLAY_BLOCK_SELECTION_BOUNDS},
		{int(BlockSelectionKMeans), capi.INLAY_BLOCK_SELECTION_KMEANS}, {int(BlockSelectionLSH), capi.INLAY_BLOCK_SELECTION_LSH},
		{int(KVAuto), capi.INLAY_KV_AUTO}, {int(KVF32), capi.INLAY_KV_F32}, {int(KVF16), capi.INLAY_KV_F16},
		{int(KVBF16), capi.INLAY_KV_BF16}, {int(KVI8), capi.INLAY_KV_I8}, {int(KVF8), capi.INLAY_KV_F8}, {int(KVQ4), capi.INLAY_KV_Q4},
		{0, capi.INLAY_WEIGHTS_MAP}, {1, capi.INLAY_WEIGHTS_READ},
		{int(LoadConfig), capi.INLAY_LOAD_CONFIG}, {int(LoadTokenizer), capi.INLAY_LOAD_TOKENIZER},
		{int(LoadWeights), capi.INLAY_LOAD_WEIGHTS}, {int(LoadReady), capi.INLAY_LOAD_READY},
		{int(QuantizeNearest), capi.INLAY_QUANTIZE_NEAREST}, {int(QuantizeImatrix), capi.INLAY_QUANTIZE_IMATRIX},
		{int(QuantizeGPTQ), capi.INLAY_QUANTIZE_GPTQ}, {int(QuantizeAWQ), capi.INLAY_QUANTIZE_AWQ},
		{int(QuantizeSmoothQuant), capi.INLAY_QUANTIZE_SMOOTHQUANT},
		{int(AddSpecial), capi.INLAY_TEXT_ADD_SPECIAL}, {int(ParseSpecial), capi.INLAY_TEXT_PARSE_SPECIAL},
		{int(SkipSpecial), capi.INLAY_TEXT_SKIP_SPECIAL},
		{0, capi.INLAY_INPUT_APPEND}, {1, capi.INLAY_INPUT_REPLACE},
		{int(LogitsNone), capi.INLAY_LOGITS_NONE}, {int(LogitsLast), capi.INLAY_LOGITS_LAST}, {int(LogitsAll), capi.INLAY_LOGITS_ALL},
		{int(LogitsPositions), capi.INLAY_LOGITS_POSITIONS}, {int(LogitsGenerated), capi.INLAY_LOGITS_GENERATED},
		{int(EventTokens), capi.INLAY_EVENT_TOKENS}, {int(EventLogits), capi.INLAY_EVENT_LOGITS}, {int(EventScores), capi.INLAY_EVENT_SCORES},
		{int(EventEmbedding), capi.INLAY_EVENT_EMBEDDING}, {int(EmbeddingNone), capi.INLAY_EMBEDDING_NONE},
		{int(EmbeddingDefault), capi.INLAY_EMBEDDING_DEFAULT}, {int(EmbeddingMean), capi.INLAY_EMBEDDING_MEAN},
		{int(EmbeddingCLS), capi.INLAY_EMBEDDING_CLS}, {int(EmbeddingLast), capi.INLAY_EMBEDDING_LAST},
		{int(EventClassification), capi.INLAY_EVENT_CLASSIFICATION},
		{int(ClassificationNone), capi.INLAY_CLASSIFICATION_NONE}, {int(ClassificationDefault), capi.INLAY_CLASSIFICATION_DEFAULT},
		{int(ClassificationLogits), capi.INLAY_CLASSIFICATION_LOGITS}, {int(ClassificationSigmoid), capi.INLAY_CLASSIFICATION_SIGMOID},
		{int(ClassificationSoftmax), capi.INLAY_CLASSIFICATION_SOFTMAX},
		{int(FinishStop), capi.INLAY_FINISH_STOP}, {int(FinishLength), capi.INLAY_FINISH_LENGTH},
		{int(FinishCancelled), capi.INLAY_FINISH_CANCELLED}, {int(FinishError), capi.INLAY_FINISH_ERROR},
	} {
		if c.got != c.want {
			t.Errorf("%d here, %d in inlay.h", c.got, c.want)
		}
	}
}

// What a new release adds to inlay.h is to be had in Go too.
func TestEveryFunctionAndOptionIsUsed(t *testing.T) {
	generated, err := os.ReadFile("internal/capi/capi.go")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, pattern := range []string{"*.go", "internal/capi/glue.c", "internal/capi/[d-z]*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(file, "_test.go") {
				source.Write(text)
			}
		}
	}
	unused := map[string]string{
		"Inlay_request_next_event": "all events are taken in bulk",
		"Inlay_error_status":       "it comes with the call",
	}
	functions := regexp.MustCompile(`(?m)^func (Inlay_\w+)\(`).FindAllStringSubmatch(string(generated), -1)
	if len(functions) < 60 {
		t.Fatalf("%d functions", len(functions))
	}
	for _, f := range functions {
		name := f[1]
		used := strings.Contains(source.String(), "capi."+name+"(") || strings.Contains(source.String(), strings.ToLower(name)+"(") ||
			strings.Contains(source.String(), "\t"+name+"(") || strings.Contains(source.String(), " "+name+"(")
		if used == (unused[name] != "") {
			t.Errorf("%s: used is %v", name, used)
		}
	}
	unset := regexp.MustCompile(`^(Struct_size|Reserved[23]?|Allocate|Deallocate|Allocator_user)$`)
	for _, f := range regexp.MustCompile(`(?m)^func \(arg1 SwigcptrInlay_(\w+_options)\) Set(\w+)\(`).FindAllStringSubmatch(string(generated), -1) {
		if used := strings.Contains(source.String(), ".Set"+f[2]+"("); used == unset.MatchString(f[2]) {
			t.Errorf("%s.%s: set is %v", f[1], f[2], used)
		}
	}
}
