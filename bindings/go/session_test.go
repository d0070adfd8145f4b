package inlay_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"inlay.dev/go/inlay"
)

func TestForkAndRewind(t *testing.T) {
	_, model := open(t, pocket)
	session := newSession(t, model)
	generate(t, session, inlay.Request{Text: "Once upon a time,", MaxTokens: 20})
	log, err := session.Tokens()
	if err != nil {
		t.Fatal(err)
	}
	fork, err := session.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer fork.Close()
	// Both go on from one log, on their own.
	one := generate(t, session, inlay.Request{MaxTokens: 12})
	two := generate(t, fork, inlay.Request{MaxTokens: 12})
	if one.Text != two.Text || two.Finish.CachedTokens < len(log)-1 {
		t.Errorf("%q and %q, %d of %d cached", one.Text, two.Text, two.Finish.CachedTokens, len(log))
	}
	other := generate(t, fork, inlay.Request{Text: " But", MaxTokens: 6})
	if err := session.Rewind(len(log)); err != nil {
		t.Fatal(err)
	}
	if got, err := session.Tokens(); err != nil || !equal(got, log) {
		t.Errorf("rewound to %v, not %v, %v", got, log, err)
	}
	if again := generate(t, session, inlay.Request{MaxTokens: 12}); again.Text != one.Text {
		t.Errorf("after the rewind %q, before %q", again.Text, one.Text)
	}
	if again := generate(t, session, inlay.Request{Text: " But", MaxTokens: 6}); again.Text != other.Text {
		t.Errorf("%q, in the fork %q", again.Text, other.Text)
	}
	info, err := session.Info()
	if err != nil || info.Busy || info.Tokens < len(log)+18 || info.Cached > info.Tokens {
		t.Errorf("%+v, %v", info, err)
	}
	if err := session.Rewind(info.Tokens + 1); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("rewound forwards: %v", err)
	}
	if err := session.Rewind(-1); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("rewound below 0: %v", err)
	}
}

func TestNamedPrefixes(t *testing.T) {
	_, model := open(t, pocket)
	const text = "Once upon a time, there was a very old bear who lived in a very deep forest by a very quiet lake."
	prefix, err := model.NewPrefix("bear", inlay.PrefixOptions{Text: text})
	if err != nil {
		t.Fatal(err)
	}
	defer prefix.Close()
	eventually(t, "the prefix is computed", func() bool {
		info, err := prefix.Info()
		return err == nil && info.Pinned && info.Cached == info.Tokens && info.KVBytes > 0
	})
	plain := generate(t, newSession(t, model), inlay.Request{Text: text, MaxTokens: 12})
	for i := 0; i < 2; i++ {
		session, err := prefix.Open()
		if err != nil {
			t.Fatal(err)
		}
		got := generate(t, session, inlay.Request{MaxTokens: 12})
		if got.Text != plain.Text || got.Finish.CachedTokens < got.Finish.PromptTokens-1 {
			t.Errorf("%q, %d of %d cached; without the prefix %q", got.Text, got.Finish.CachedTokens, got.Finish.PromptTokens, plain.Text)
		}
		session.Close()
	}
	if _, err := model.NewPrefix("bear", inlay.PrefixOptions{Text: "x"}); !errors.Is(err, inlay.ErrInvalidState) {
		t.Errorf("a second one of that name: %v", err)
	}
	found, err := model.FindPrefix("bear")
	if err != nil {
		t.Fatal(err)
	}
	if err := prefix.Pin(false); err != nil {
		t.Fatal(err)
	}
	prefix.Close()
	if info, err := found.Info(); err != nil || info.Pinned {
		t.Errorf("%+v, %v", info, err)
	}
	found.Close()
	if _, err := model.FindPrefix("bear"); !errors.Is(err, inlay.ErrNotFound) {
		t.Errorf("forgotten: %v", err)
	}
	chat, err := model.NewPrefix("system", inlay.PrefixOptions{Chat: inlay.Conversation(inlay.System("Be brief.")), Unpinned: true})
	if err != nil {
		t.Fatal(err)
	}
	defer chat.Close()
	tokens, err := model.NewPrefix("tokens", inlay.PrefixOptions{Tokens: []int32{0, 5, 6}})
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	if info, err := tokens.Info(); err != nil || info.Tokens != 3 {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestSnapshots(t *testing.T) {
	_, model := open(t, pocket)
	session := newSession(t, model)
	request := inlay.Request{Text: "Once upon a time,", MaxTokens: 20, Temperature: 0.9, Seed: 5}
	generate(t, session, request)
	path := filepath.Join(t.TempDir(), "sesión 🦊.inlay")
	if err := session.Save(path); err != nil {
		t.Fatal(err)
	}
	bytes, err := session.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	onward := inlay.Request{MaxTokens: 20, Temperature: 0.9, Seed: 5, Resume: true}
	want := generate(t, session, onward).Text

	// On another engine: nothing but the snapshot tells it.
	_, other := open(t, pocket)
	fromFile, info, err := other.Restore(path)
	if err != nil || info.Tokens == 0 || info.Restored == 0 || info.Note != "" {
		t.Fatalf("%+v, %v", info, err)
	}
	defer fromFile.Close()
	if got := generate(t, fromFile, onward).Text; got != want {
		t.Errorf("from the file %q, the session itself %q", got, want)
	}
	fromBytes, info, err := other.RestoreSnapshot(bytes)
	if err != nil || info.Restored == 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	defer fromBytes.Close()
	if got := generate(t, fromBytes, onward).Text; got != want {
		t.Errorf("from the bytes %q, the session itself %q", got, want)
	}

	if _, _, err := other.RestoreSnapshot([]byte("no snapshot")); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("no snapshot: %v", err)
	}
	if _, _, err := other.RestoreSnapshot(nil); err == nil {
		t.Error("nothing was restored")
	}
	if _, _, err := other.RestoreSnapshot(bytes[:40]); err == nil {
		t.Error("40 bytes were restored")
	}
	if _, _, err := other.Restore(path + ".none"); !errors.Is(err, inlay.ErrNotFound) {
		t.Errorf("no file: %v", err)
	}
	if err := session.Save(filepath.Join(path, "below a file")); err == nil {
		t.Error("saved below a file")
	}
}

func TestMemoryLease(t *testing.T) {
	_, reference := open(t, tiny)
	engine := newEngine(t, nil)
	model, err := engine.LoadModel(background(t), tiny, &inlay.ModelOptions{ReadWeights: true, KVBlockSize: 8, KVBudget: 64 * 8 * 1024})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	s := stats(t, engine)
	floor, full := s.WeightBytes+s.WorkspaceBytes, s.MemoryBytes
	if floor == 0 || full <= floor {
		t.Fatalf("floor %d, full %d", floor, full)
	}
	if err := engine.SetMemoryBudget(floor / 2); !errors.Is(err, inlay.ErrResourceExhausted) {
		t.Errorf("below the weights: %v", err)
	}
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Add(1)
		request := inlay.Request{Tokens: prompt(i*31, 40), MaxTokens: 60, IgnoreEOS: true}
		want := generate(t, newSession(t, reference), request).Tokens
		session := newSession(t, model)
		go func(i int) {
			defer wg.Done()
			for round := 0; round < 4; round++ {
				request.Replace = true
				got, err := session.Generate(background(t), request)
				if err != nil || !equal(got.Tokens, want) {
					t.Errorf("request %d: %v, %v, without a lease %v", i, err, got, want)
				}
			}
		}(i)
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	small := floor + (full-floor)/3
	for running := true; running; {
		for _, budget := range []uint64{small, 0, full} {
			if err := engine.SetMemoryBudget(budget); err != nil {
				t.Error(err)
			}
			if budget == small {
				eventually(t, "memory is within the lease", func() bool { return stats(t, engine).MemoryBytes <= small })
			}
		}
		select {
		case <-done:
			running = false
		default:
		}
	}
	if s := stats(t, engine); s.MemoryBudget != full || s.FailedRequests != 0 || s.FinishedRequests != 32 {
		t.Errorf("%+v", s)
	}
}

func TestQuotes(t *testing.T) {
	_, model := open(t, pocket)
	session := newSession(t, model)
	quote, err := session.Quote(inlay.Request{Text: "Once upon a time,", MaxTokens: 100}, false)
	if err != nil || !quote.Fits || !quote.FitsNow || quote.Reserved || quote.PromptTokens == 0 || quote.KVBytes == 0 {
		t.Errorf("%+v, %v", quote, err)
	}
	quote, err = session.Quote(inlay.Request{Text: "Once upon a time,", MaxTokens: 100}, true)
	if err != nil || !quote.Reserved {
		t.Errorf("%+v, %v", quote, err)
	}
}

func TestRecordAndReplay(t *testing.T) {
	_, model := open(t, tiny)
	path := filepath.Join(t.TempDir(), "recording")
	if err := model.RecordStart(path); err != nil {
		t.Fatal(err)
	}
	if err := model.RecordStart(path); !errors.Is(err, inlay.ErrInvalidState) {
		t.Errorf("twice: %v", err)
	}
	generate(t, newSession(t, model), inlay.Request{Tokens: prompt(1, 20), MaxTokens: 10})
	if err := model.RecordStop(); err != nil {
		t.Fatal(err)
	}
	report, err := model.Replay(path)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Same   bool
		Tokens int
	}
	if unmarshal(t, report, &read); !read.Same || read.Tokens < 10 {
		t.Errorf("%s", report)
	}
	if _, err := model.Replay(os.DevNull); err == nil {
		t.Error("nothing was replayed")
	}
}

func TestStatisticsAndMetrics(t *testing.T) {
	engine, model := open(t, pocket)
	if err := engine.TraceStart(1000); err != nil {
		t.Fatal(err)
	}
	session := newSession(t, model)
	generate(t, session, inlay.Request{Text: "Once upon a time,", MaxTokens: 10})
	s := stats(t, engine)
	if s.Models != 1 || s.Sessions != 1 || s.SubmittedRequests != 1 || s.FinishedRequests != 1 || s.DecodeTokens < 9 ||
		s.PrefillTokens == 0 || s.Steps < 10 || s.StepTime <= 0 || s.KVBlocksTotal == 0 || s.MemoryBytes == 0 || s.MappedBytes == 0 {
		t.Errorf("%+v", s)
	}
	if s.TimeToFirstToken.Count != 1 || s.InterTokenTime.Count != 9 || s.InterTokenTime.P50 == 0 ||
		s.InterTokenTime.Max < s.InterTokenTime.P50 || s.RequestTime.Count != 1 {
		t.Errorf("%+v", s)
	}
	cached, err := engine.LoadModel(context.Background(), pocket, &inlay.ModelOptions{HostCache: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if s := stats(t, engine); s.HostCacheBudget <= 15<<20 || s.HostCacheBudget > 16<<20 || s.HostCacheBytes != 0 {
		t.Errorf("%+v", s)
	}
	cached.Close()
	text, err := engine.Metrics()
	if err != nil || !strings.Contains(text, "inlay_requests_finished_total{reason=\"length\"} 1\n") {
		t.Errorf("%s, %v", text, err)
	}
	if proto, err := engine.MetricsProto(); err != nil || len(proto) < 100 {
		t.Errorf("%d bytes, %v", len(proto), err)
	}
	if trace, err := engine.TraceTake(true); err != nil || len(trace) < 100 {
		t.Errorf("%d bytes, %v", len(trace), err)
	}
	if _, err := engine.TraceTake(true); !errors.Is(err, inlay.ErrInvalidState) {
		t.Errorf("nothing is traced: %v", err)
	}
	if err := engine.TraceStart(-1); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("-1 events: %v", err)
	}
	device, err := engine.Device()
	if err != nil || device.Backend != inlay.BackendCPU || device.Name == "" || device.Processors == 0 || device.MemoryBytes == 0 {
		t.Errorf("%+v, %v", device, err)
	}
	if rate, err := engine.MeasureCopy(1 << 20); err != nil || rate < 1e8 {
		t.Errorf("%v bytes/s, %v", rate, err)
	}
	info, err := model.Info()
	if err != nil || info.Architecture != "LlamaForCausalLM" || info.Layers == 0 || info.EOS != 6 || !info.HasTokenizer ||
		!info.HasChatTemplate || info.EmbeddingSize != info.HiddenSize || info.MaxContext != 2048 || info.WeightBytes == 0 {
		t.Errorf("%+v, %v", info, err)
	}
	json, err := inlay.Inspect(pocket)
	var inspected struct{ Architecture string }
	if err != nil {
		t.Fatal(err)
	}
	if unmarshal(t, json, &inspected); inspected.Architecture != "LlamaForCausalLM" {
		t.Errorf("%s", json)
	}
}

func TestQuantize(t *testing.T) {
	out := filepath.Join(t.TempDir(), "pocket.gguf")
	last := 0.0
	report, err := inlay.Quantize(background(t), pocket, out, &inlay.QuantizeOptions{
		Type: "q8_0", TensorTypes: []string{"*.mlp.*=q4_0"},
		Progress: func(stage inlay.LoadStage, fraction float64) bool { last = fraction; return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Type      string
		FileBytes int64 `json:"file_bytes"`
	}
	unmarshal(t, report, &read)
	if file, err := os.Stat(out); err != nil || read.Type != "q8_0" || file.Size() != read.FileBytes || last != 1 {
		t.Errorf("%v, %+v, progress to %v", err, read, last)
	}
	_, model := open(t, out)
	if got := generate(t, newSession(t, model), inlay.Request{Text: "Once upon a time,", MaxTokens: 4}); len(got.Tokens) != 4 {
		t.Errorf("%+v", got)
	}
	_, err = inlay.Quantize(background(t), pocket, out+"2", &inlay.QuantizeOptions{
		Progress: func(inlay.LoadStage, float64) bool { return false }})
	if !errors.Is(err, inlay.ErrCancelled) {
		t.Errorf("refused: %v", err)
	}
	_, err = inlay.Quantize(background(t), pocket, out+"2", &inlay.QuantizeOptions{
		Progress: func(inlay.LoadStage, float64) bool { panic("at the disco") }})
	if !errors.Is(err, inlay.ErrCancelled) || fmt.Sprint(err) != "inlay: INLAY_CANCELLED: the progress function panicked: at the disco" {
		t.Errorf("panicked: %v", err)
	}
	if _, err := inlay.Quantize(background(t), pocket, out+"2", &inlay.QuantizeOptions{Type: "q9"}); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("q9: %v", err)
	}
	if _, err := inlay.Quantize(background(t), pocket, out+"2", &inlay.QuantizeOptions{
		Type: "q4_0", Method: inlay.QuantizeImatrix, ImatrixPath: out + "3"}); !errors.Is(err, inlay.ErrNotFound) {
		t.Errorf("no imatrix: %v", err)
	}
	if _, err := os.Stat(out + "2"); !os.IsNotExist(err) {
		t.Errorf("what failed left a file: %v", err)
	}
}
