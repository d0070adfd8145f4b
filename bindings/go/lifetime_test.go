package inlay_test

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inlay.dev/go/inlay"
)

func TestErrorsByCode(t *testing.T) {
	engine, model := open(t, pocket)
	_, noTokenizer := open(t, tiny)
	small, err := engine.LoadModel(context.Background(), pocket, &inlay.ModelOptions{KVBudget: 512 * 8192})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	session := newSession(t, model)
	ctx := context.Background()
	submit := func(session *inlay.Session, request inlay.Request) error {
		stream, err := session.Submit(ctx, request)
		if err == nil {
			stream.Close()
		}
		return err
	}
	load := func(path string, options *inlay.ModelOptions) error {
		_, err := engine.LoadModel(ctx, path, options)
		return err
	}
	create := func(options inlay.EngineOptions) error {
		engine, err := inlay.NewEngine(&options)
		if err == nil {
			engine.Close()
		}
		return err
	}
	vocabOnly, err := engine.LoadModel(ctx, pocket, &inlay.ModelOptions{VocabOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer vocabOnly.Close()
	second := func(_ any, err error) error { return err }
	for name, c := range map[string]struct {
		err  error
		code inlay.Code
		says string
	}{
		"no model":              {load("/no/such/model", nil), inlay.ErrNotFound, "/no/such/model"},
		"NUL in a path":         {load("a\x00b", nil), inlay.ErrInvalidArgument, "path has a NUL byte at offset 1"},
		"block size":            {load(pocket, &inlay.ModelOptions{KVBlockSize: 7}), inlay.ErrInvalidArgument, "7"},
		"block size below 0":    {load(pocket, &inlay.ModelOptions{KVBlockSize: -1}), inlay.ErrInvalidArgument, "KVBlockSize is -1"},
		"no such kernel":        {load(pocket, &inlay.ModelOptions{Kernels: "gemm=none"}), inlay.ErrNotFound, "gemm"},
		"KV budget":             {load(pocket, &inlay.ModelOptions{KVBudget: 1}), inlay.ErrResourceExhausted, ""},
		"threads":               {create(inlay.EngineOptions{Threads: 5000}), inlay.ErrInvalidArgument, "5000"},
		"batch over 32 bits":    {create(inlay.EngineOptions{MaxBatchTokens: 1 << 40}), inlay.ErrInvalidArgument, "MaxBatchTokens"},
		"backend":               {create(inlay.EngineOptions{Backend: 9}), inlay.ErrInvalidArgument, "9"},
		"two inputs":            {submit(session, inlay.Request{Text: "a", Tokens: []int32{1}}), inlay.ErrInvalidArgument, "more than one"},
		"temperature":           {submit(session, inlay.Request{Text: "a", Temperature: -1}), inlay.ErrInvalidArgument, "temperature"},
		"MaxTokens below 0":     {submit(session, inlay.Request{Text: "a", MaxTokens: -1}), inlay.ErrInvalidArgument, "MaxTokens is -1"},
		"stop with NUL":         {submit(session, inlay.Request{Text: "a", StopStrings: []string{"\x00"}}), inlay.ErrInvalidArgument, "StopStrings"},
		"token out of range":    {submit(session, inlay.Request{Tokens: []int32{1 << 30}}), inlay.ErrInvalidArgument, "1073741824"},
		"longer than possible":  {submit(session, inlay.Request{Tokens: make([]int32, 100000)}), inlay.ErrInvalidArgument, "100000"},
		"more KV than there is": {submit(newSession(t, small), inlay.Request{Tokens: make([]int32, 1000)}), inlay.ErrResourceExhausted, ""},
		"text, no tokenizer":    {second(noTokenizer.Tokenize("a", 0)), inlay.ErrUnsupported, "tokenizer"},
		"chat, no template":     {second(noTokenizer.RenderChat(inlay.Conversation())), inlay.ErrUnsupported, ""},
		"ids out of range":      {second(model.Detokenize([]int32{-1}, 0)), inlay.ErrInvalidArgument, "-1"},
		"session of a vocab":    {second(vocabOnly.NewSession()), inlay.ErrInvalidState, ""},
		"inspect nothing":       {second(inlay.Inspect("/no/such/model")), inlay.ErrNotFound, ""},
		"template":              {second(inlay.RenderTemplate("{% for", inlay.Conversation())), inlay.ErrInvalidArgument, ""},
	} {
		var e *inlay.Error
		if !errors.Is(c.err, c.code) || !errors.As(c.err, &e) || e.Code != c.code || e.Name() != c.code.Name() ||
			e.Message == "" || !strings.Contains(e.Message, c.says) || !strings.Contains(c.err.Error(), e.Message) {
			t.Errorf("%s: %v, wanted %v that says %q", name, c.err, c.code, c.says)
		}
		if errors.Is(c.err, inlay.ErrInternal) {
			t.Errorf("%s is an internal error too", name)
		}
	}
	if inlay.ErrNotFound.Name() != "INLAY_NOT_FOUND" || inlay.ErrNotFound.Error() != "inlay: INLAY_NOT_FOUND" {
		t.Errorf("%v", inlay.ErrNotFound)
	}
	busy := submitLong(t, session)
	if err := submit(session, inlay.Request{Text: "a"}); !errors.Is(err, inlay.ErrInvalidState) {
		t.Errorf("a second request: %v", err)
	}
	if _, err := session.Fork(); !errors.Is(err, inlay.ErrInvalidState) {
		t.Errorf("fork of a busy session: %v", err)
	}
	busy.Close()
}

func submitLong(t *testing.T, session *inlay.Session) *inlay.Stream {
	return submit(t, session, inlay.Request{Text: "Once", MaxTokens: 1500, IgnoreEOS: true})
}

// Every method of what was closed, and of what came from an engine that was closed.
func TestUseAfterClose(t *testing.T) {
	type things struct {
		engine  *inlay.Engine
		model   *inlay.Model
		session *inlay.Session
		prefix  *inlay.Prefix
		stream  *inlay.Stream
	}
	var snapshot []byte
	make := func(t *testing.T) things {
		engine, model := open(t, pocket)
		prefix, err := model.NewPrefix("p", inlay.PrefixOptions{Text: "Once"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { prefix.Close() })
		session := newSession(t, model)
		if snapshot, err = session.Snapshot(); err != nil {
			t.Fatal(err)
		}
		return things{engine, model, session, prefix, submitLong(t, session)}
	}
	ctx := context.Background()
	engineCalls := func(e *inlay.Engine) map[string]error {
		_, step := e.Step(0)
		_, stats := e.Stats()
		_, metrics := e.Metrics()
		_, device := e.Device()
		_, rate := e.MeasureCopy(1 << 20)
		_, load := e.LoadModel(ctx, pocket, nil)
		_, trace := e.TraceTake(true)
		return map[string]error{"Step": step, "Stats": stats, "Metrics": metrics, "Device": device, "MeasureCopy": rate, "LoadModel": load,
			"TraceTake": trace, "TraceStart": e.TraceStart(1), "SetMemoryBudget": e.SetMemoryBudget(0)}
	}
	modelCalls := func(m *inlay.Model) map[string]error {
		_, session := m.NewSession()
		_, _, restore := m.RestoreSnapshot(snapshot)
		_, prefix := m.NewPrefix("q", inlay.PrefixOptions{Text: "x"})
		_, find := m.FindPrefix("p")
		return map[string]error{"NewSession": session, "RestoreSnapshot": restore, "NewPrefix": prefix, "FindPrefix": find}
	}
	// These need no engine: a model's tokenizer outlives it.
	textCalls := func(m *inlay.Model) map[string]error {
		_, info := m.Info()
		_, tokens := m.Tokenize("x", 0)
		_, text := m.Detokenize([]int32{1}, 0)
		_, chat := m.RenderChat(inlay.Conversation())
		_, defaults := m.RequestDefaults()
		return map[string]error{"Info": info, "Tokenize": tokens, "Detokenize": text, "RenderChat": chat, "RequestDefaults": defaults}
	}
	sessionCalls := func(s *inlay.Session) map[string]error {
		_, submit := s.Submit(ctx, inlay.Request{Text: "x"})
		_, generate := s.Generate(ctx, inlay.Request{Text: "x"})
		_, quote := s.Quote(inlay.Request{Text: "x"}, false)
		_, fork := s.Fork()
		_, info := s.Info()
		_, tokens := s.Tokens()
		_, snapshot := s.Snapshot()
		return map[string]error{"Submit": submit, "Generate": generate, "Quote": quote, "Fork": fork, "Info": info, "Tokens": tokens,
			"Snapshot": snapshot, "Save": s.Save(t.TempDir() + "/x"), "Rewind": s.Rewind(0)}
	}
	prefixCalls := func(p *inlay.Prefix) map[string]error {
		_, open := p.Open()
		_, info := p.Info()
		return map[string]error{"Open": open, "Info": info, "Pin": p.Pin(true)}
	}
	streamCalls := func(s *inlay.Stream) map[string]error {
		_, next := s.Next(ctx)
		_, _, poll := s.Poll()
		_, collect := s.Collect(ctx)
		s.Scan()
		for range s.Events(ctx) {
		}
		return map[string]error{"Next": next, "Poll": poll, "Collect": collect, "Scan": s.Err(), "Wait": s.Wait(ctx)}
	}
	allClosed := func(t *testing.T, calls map[string]error) {
		t.Helper()
		for name, err := range calls {
			if !errors.Is(err, inlay.ErrClosed) {
				t.Errorf("%s gives %v", name, err)
			}
		}
	}
	t.Run("each", func(t *testing.T) {
		x := make(t)
		for i := 0; i < 2; i++ { // closing twice is nothing
			x.stream.Close()
			allClosed(t, streamCalls(x.stream))
			if err := x.stream.Cancel(); err != nil {
				t.Errorf("Cancel gives %v", err)
			}
			x.session.Close()
			allClosed(t, sessionCalls(x.session))
			x.prefix.Close()
			allClosed(t, prefixCalls(x.prefix))
			x.model.Close()
			allClosed(t, modelCalls(x.model))
			allClosed(t, textCalls(x.model))
			x.engine.Close()
			allClosed(t, engineCalls(x.engine))
		}
	})
	t.Run("engine first", func(t *testing.T) {
		x := make(t)
		waiting := readInBackground(x.stream)
		x.engine.Close()
		if err := <-waiting; !errors.Is(err, inlay.ErrClosed) {
			t.Errorf("who waited got %v", err)
		}
		allClosed(t, engineCalls(x.engine))
		allClosed(t, modelCalls(x.model))
		allClosed(t, sessionCalls(x.session))
		allClosed(t, prefixCalls(x.prefix))
		allClosed(t, streamCalls(x.stream))
		for name, err := range textCalls(x.model) {
			if err != nil && !errors.Is(err, inlay.ErrClosed) {
				t.Errorf("%s gives %v", name, err)
			}
		}
	})
	t.Run("model first", func(t *testing.T) {
		x := make(t)
		x.model.Close()
		// What came from it goes on.
		if !x.stream.Scan() {
			t.Error(x.stream.Err())
		}
		x.session.Close()
		if err := drainAll(background(t), x.stream); !errors.Is(err, inlay.ErrCancelled) {
			t.Errorf("the session was closed, and its stream ends with %v", err)
		}
	})
}

// readInBackground reads a stream to its end in another goroutine.
func readInBackground(stream *inlay.Stream) <-chan error {
	result := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		_, err := stream.Next(context.Background())
		close(begun)
		for err == nil {
			_, err = stream.Next(context.Background())
		}
		result <- err
	}()
	<-begun
	return result
}

// Everything is closed while it is used, from other goroutines.
func TestCloseWhileInUse(t *testing.T) {
	for round := 0; round < 8; round++ {
		engine, model := open(t, tiny)
		var wg sync.WaitGroup
		var stop atomic.Bool
		for worker := 0; worker < 8; worker++ {
			wg.Add(1)
			go func(worker int) {
				defer wg.Done()
				for i := 0; !stop.Load(); i++ {
					session, err := model.NewSession()
					if err != nil {
						if !errors.Is(err, inlay.ErrClosed) && !errors.Is(err, inlay.ErrInvalidHandle) {
							t.Error(err)
						}
						return
					}
					other := make(chan struct{})
					go func() {
						session.Info()
						session.Close()
						close(other)
					}()
					stream, err := session.Submit(context.Background(), inlay.Request{Tokens: prompt(i, 5), MaxTokens: 3})
					if err == nil {
						go stream.Close()
						err = drainAll(context.Background(), stream)
					}
					for _, code := range []inlay.Code{inlay.ErrClosed, inlay.ErrInvalidHandle, inlay.ErrCancelled} {
						if errors.Is(err, code) {
							err = nil
						}
					}
					if err != nil {
						t.Error(err)
					}
					engine.Stats()
					<-other
				}
			}(worker)
		}
		time.Sleep(20 * time.Millisecond)
		model.Close()
		go engine.Close()
		engine.Close()
		stop.Store(true)
		wg.Wait()
	}
}

func descriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// Nothing is closed; the collector finds it all. Streams that nobody reads are cancelled.
func TestFinalizersOnly(t *testing.T) {
	engine, model := open(t, pocket)
	goroutines := runtime.NumGoroutine()
	func() {
		for i := 0; i < 20; i++ {
			session, err := model.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := session.Submit(context.Background(), inlay.Request{Text: "Once", MaxTokens: 1500, IgnoreEOS: true}); err != nil {
				t.Fatal(err)
			}
			prefix, err := model.NewPrefix("p"+string(rune('a'+i)), inlay.PrefixOptions{Text: "Once"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := prefix.Open(); err != nil {
				t.Fatal(err)
			}
			if _, err := engine.LoadModel(context.Background(), tiny, nil); err != nil {
				t.Fatal(err)
			}
		}
	}()
	eventually(t, "sessions, requests, prefixes and models are gone", func() bool {
		runtime.GC()
		_, err := model.FindPrefix("pa")
		s := stats(t, engine)
		return s.Sessions == 0 && s.RunningRequests == 0 && s.Models == 1 && errors.Is(err, inlay.ErrNotFound)
	})
	if s := stats(t, engine); s.CancelledRequests != 20 {
		t.Errorf("%d of 20 requests were cancelled", s.CancelledRequests)
	}

	before := descriptors(t)
	func() {
		for i := 0; i < 5; i++ {
			engine, err := inlay.NewEngine(&inlay.EngineOptions{Backend: inlay.BackendCPU, Log: func(inlay.LogLevel, string) {}})
			if err != nil {
				t.Fatal(err)
			}
			model, err := engine.LoadModel(context.Background(), tiny, nil)
			if err != nil {
				t.Fatal(err)
			}
			session, err := model.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := session.Submit(context.Background(), inlay.Request{Tokens: prompt(1, 5)}); err != nil {
				t.Fatal(err)
			}
		}
		if descriptors(t) <= before {
			t.Error("engines have no descriptor")
		}
	}()
	eventually(t, "engines are gone", func() bool {
		runtime.GC()
		return descriptors(t) <= before && runtime.NumGoroutine() <= goroutines
	})
}

// What is only held by what came from it stays.
func TestKeptAlive(t *testing.T) {
	stream := func() *inlay.Stream {
		engine, err := inlay.NewEngine(&inlay.EngineOptions{Backend: inlay.BackendCPU})
		if err != nil {
			t.Fatal(err)
		}
		model, err := engine.LoadModel(context.Background(), tiny, nil)
		if err != nil {
			t.Fatal(err)
		}
		session, err := model.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		stream, err := session.Submit(context.Background(), inlay.Request{Tokens: prompt(1, 5), MaxTokens: 200, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}()
	tokens := 0
	for {
		runtime.GC()
		event, err := stream.Next(background(t))
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		tokens += len(event.Tokens)
	}
	if tokens != 200 {
		t.Errorf("%d of 200 tokens", tokens)
	}
}

func TestCallbacks(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	engine := newEngine(t, &inlay.EngineOptions{LogLevel: inlay.LogDebug, Log: func(level inlay.LogLevel, message string) {
		mu.Lock()
		defer mu.Unlock()
		if level < inlay.LogError || level > inlay.LogDebug {
			t.Errorf("level %d", level)
		}
		lines = append(lines, message)
		panic("in the log")
	}})
	stages := map[inlay.LoadStage]bool{}
	model, err := engine.LoadModel(context.Background(), pocket, &inlay.ModelOptions{Progress: func(stage inlay.LoadStage, fraction float64) bool {
		stages[stage] = true
		return fraction >= 0 && fraction <= 1
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	if len(stages) != 4 {
		t.Errorf("stages %v", stages)
	}
	generate(t, newSession(t, model), inlay.Request{Text: "Once", MaxTokens: 2})
	mu.Lock()
	if len(lines) == 0 {
		t.Error("no log")
	}
	mu.Unlock()

	load := func(ctx context.Context, progress func(inlay.LoadStage, float64) bool) error {
		_, err := engine.LoadModel(ctx, pocket, &inlay.ModelOptions{Progress: progress})
		return err
	}
	if err := load(context.Background(), func(inlay.LoadStage, float64) bool { return false }); !errors.Is(err, inlay.ErrCancelled) {
		t.Errorf("refused: %v", err)
	}
	err = load(context.Background(), func(inlay.LoadStage, float64) bool { panic(errors.New("on the way")) })
	if !errors.Is(err, inlay.ErrCancelled) || !strings.Contains(err.Error(), "on the way") {
		t.Errorf("panicked: %v", err)
	}
	if err := load(context.Background(), func(inlay.LoadStage, float64) bool { runtime.Goexit(); return true }); !errors.Is(err, inlay.ErrCancelled) {
		t.Errorf("left: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := load(ctx, func(inlay.LoadStage, float64) bool { cancel(); return true }); !errors.Is(err, context.Canceled) {
		t.Errorf("the context was cancelled while loading: %v", err)
	}
	if s := stats(t, engine); s.Models != 1 {
		t.Errorf("%d models", s.Models)
	}
}
