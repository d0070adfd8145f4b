package inlay_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"inlay.dev/go/inlay"
)

const (
	// The model that ships: tokenizer, chat template, 4096 tokens.
	pocket = "../../examples/models/pocket-7m"
	// 2 layers, 512 random tokens, no tokenizer; a step takes some dozen microseconds.
	tiny = "../../tests/data/models/llama3"
)

func TestMain(m *testing.M) {
	for _, model := range []string{pocket, tiny} {
		if _, err := os.Stat(model); err != nil {
			// Without the models of the repository there is nothing to test with, and nothing has passed.
			println("the tests need Inlay's repository around them:", err.Error())
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newEngine(t testing.TB, options *inlay.EngineOptions) *inlay.Engine {
	t.Helper()
	if options == nil {
		options = &inlay.EngineOptions{}
	}
	options.Backend = inlay.BackendCPU
	engine, err := inlay.NewEngine(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	return engine
}

func load(t testing.TB, engine *inlay.Engine, path string) *inlay.Model {
	t.Helper()
	model, err := engine.LoadModel(background(t), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	return model
}

func open(t testing.TB, path string) (*inlay.Engine, *inlay.Model) {
	t.Helper()
	engine := newEngine(t, nil)
	return engine, load(t, engine, path)
}

func newSession(t testing.TB, model *inlay.Model) *inlay.Session {
	t.Helper()
	session, err := model.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

func submit(t testing.TB, session *inlay.Session, request inlay.Request) *inlay.Stream {
	t.Helper()
	stream, err := session.Submit(background(t), request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return stream
}

func generate(t testing.TB, session *inlay.Session, request inlay.Request) *inlay.Completion {
	t.Helper()
	completion, err := session.Generate(background(t), request)
	if err != nil {
		t.Fatal(err)
	}
	return completion
}

func stats(t testing.TB, engine *inlay.Engine) inlay.Stats {
	t.Helper()
	stats, err := engine.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// eventually asks again until it is so, or too late.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if so() {
			return
		}
	}
	t.Fatalf("not within 30 s: %s", what)
}

func drainAll(ctx context.Context, stream *inlay.Stream) error {
	for {
		if _, err := stream.Next(ctx); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// prompt makes tokens of the tiny model.
func prompt(first, count int) []int32 {
	tokens := make([]int32, count)
	for i := range tokens {
		tokens[i] = int32((first + 7*i) % 512)
	}
	return tokens
}

func unmarshal(t testing.TB, data []byte, to any) {
	t.Helper()
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}
