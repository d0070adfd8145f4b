package inlay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"inlay.dev/go/inlay"
	"inlay.dev/go/inlay/internal/cref"
)

// An encoder without a tokenizer, and what transformers makes of it.
const bert = "../../tests/data/models/bert"

func embed(t testing.TB, model *inlay.Model, texts []string, options *inlay.EmbedOptions) [][]float32 {
	t.Helper()
	vectors, err := model.Embed(background(t), texts, options)
	if err != nil {
		t.Fatal(err)
	}
	if len(vectors) != len(texts) {
		t.Fatalf("%d vectors of %d texts", len(vectors), len(texts))
	}
	return vectors
}

func someTexts(count int) []string {
	texts := make([]string, count)
	for i := range texts {
		texts[i] = fmt.Sprintf("Fox %d%s", i, strings.Repeat(" has a lantern", i%17))
	}
	return texts
}

func TestEmbedEqualsC(t *testing.T) {
	_, model := open(t, pocket)
	info, err := model.Info()
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{"A fox.", "Höher als der Mond 🌙", "A lantern in the woods, and nobody near it."}
	for _, options := range []*inlay.EmbedOptions{nil, {Embedding: inlay.EmbeddingMean, Normalise: true}, {Embedding: inlay.EmbeddingMean},
		{Embedding: inlay.EmbeddingCLS}, {Embedding: inlay.EmbeddingLast}, {Embedding: inlay.EmbeddingDefault}} {
		vectors := embed(t, model, texts, options)
		kind, normalise := inlay.EmbeddingDefault, false
		if options != nil {
			kind, normalise = options.Embedding, options.Normalise
		}
		for i, text := range texts {
			want, err := cref.Embed(pocket, text, int32(kind), normalise)
			if err != nil {
				t.Fatal(err)
			}
			if len(want) != info.HiddenSize || !equal(vectors[i], want) {
				t.Errorf("%+v: of %q %v, and in C %v", options, text, vectors[i], want)
			}
		}
		if length := norm(vectors[0]); normalise && math.Abs(length-1) > 1e-6 {
			t.Errorf("%+v: the length is %v", options, length)
		}
	}
}

func contains(list []int32, value int32) bool {
	for _, one := range list {
		if one == value {
			return true
		}
	}
	return false
}

func norm(vector []float32) float64 {
	squares := 0.0
	for _, x := range vector {
		squares += float64(x) * float64(x)
	}
	return math.Sqrt(squares)
}

// More texts than are under way at once, and than the engine's queue takes.
func TestEmbedSideBySide(t *testing.T) {
	options := &inlay.EmbedOptions{Embedding: inlay.EmbeddingMean, Normalise: true}
	_, quiet := open(t, pocket)
	engine := newEngine(t, &inlay.EngineOptions{MaxRunning: 8, MaxQueue: 16})
	few := load(t, engine, pocket)
	texts := someTexts(60)
	got := embed(t, few, texts, options)
	for i, text := range texts {
		if want := embed(t, quiet, []string{text}, options)[0]; !equal(got[i], want) {
			t.Errorf("text %d: %v, alone %v", i, got[i], want)
		}
	}
	if s := stats(t, engine); s.FinishedRequests != 60 || s.CancelledRequests != 0 {
		t.Errorf("%+v", s)
	}
	eventually(t, "the sessions are closed", func() bool { return stats(t, engine).Sessions == 0 })

	_, model := open(t, tiny)
	inputs := make([][]int32, 600)
	for i := range inputs {
		inputs[i] = prompt(i%40, 1+i%40)
	}
	vectors, err := model.EmbedTokens(background(t), inputs, nil)
	if err != nil || len(vectors) != 600 {
		t.Fatalf("%d vectors, %v", len(vectors), err)
	}
	for i := range vectors {
		if len(vectors[i]) == 0 || !equal(vectors[i], vectors[i%40]) {
			t.Errorf("input %d: %v, and of the same %v", i, vectors[i], vectors[i%40])
		}
	}
}

func TestEmbedHostDriven(t *testing.T) {
	texts := someTexts(20)
	_, threaded := open(t, pocket)
	want := embed(t, threaded, texts, nil)
	engine := newEngine(t, &inlay.EngineOptions{HostDriven: true})
	model := load(t, engine, pocket)
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err := model.Embed(background(t), texts, nil)
		if err != nil {
			t.Error(err)
			return
		}
		for i := range want {
			if !equal(got[i], want[i]) {
				t.Errorf("text %d: %v, with a thread %v", i, got[i], want[i])
			}
		}
	}()
	for running := true; running; {
		if _, err := engine.Step(time.Millisecond); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			running = false
		case <-time.After(100 * time.Microsecond):
		}
	}
}

func TestEmbeddingInASession(t *testing.T) {
	_, model := open(t, pocket)
	want := embed(t, model, []string{"A fox."}, &inlay.EmbedOptions{Embedding: inlay.EmbeddingMean})[0]
	request := inlay.Request{Text: "A fox.", Embedding: inlay.EmbeddingMean}
	stream := submit(t, newSession(t, model), request)
	event, err := stream.Next(background(t))
	if err != nil || event.Kind != inlay.EventEmbedding || !equal(event.Embedding, want) {
		t.Errorf("%+v, %v", event, err)
	}
	if event, err := stream.Next(background(t)); err != io.EOF {
		t.Errorf("%+v, %v", event, err)
	}
	session := newSession(t, model)
	got := generate(t, session, request)
	if !equal(got.Embedding, want) || len(got.Tokens) != 0 || got.Text != "" || got.Finish.GeneratedTokens != 0 {
		t.Errorf("%+v", got)
	}
	// The log goes on, and a decoder still generates.
	if got := generate(t, session, inlay.Request{Text: " It", MaxTokens: 4}); len(got.Tokens) != 4 || got.Embedding != nil {
		t.Errorf("%+v", got)
	}
}

func TestEncoder(t *testing.T) {
	data, err := os.ReadFile(bert + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Name       string
			Tokens     []int32   `json:"input_ids"`
			Types      []int32   `json:"token_type_ids"`
			Mean       []float64 `json:"mean_pooled"`
			Normalised []float64 `json:"mean_pooled_normalised"`
			CLS        []float64
			Deviation  float64 `json:"hidden_std"`
		}
	}
	unmarshal(t, data, &golden)
	_, model := open(t, bert)
	cases := golden.Cases[:0]
	var inputs [][]int32
	for _, c := range golden.Cases {
		// Tokens with types are for TestClassifyGivesWhatTransformersGives.
		if !contains(c.Types, 1) {
			cases, inputs = append(cases, c), append(inputs, c.Tokens)
		}
	}
	if len(cases) < 3 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, kind := range []inlay.Embedding{inlay.EmbeddingMean, inlay.EmbeddingCLS, inlay.EmbeddingDefault} {
		vectors, err := model.EmbedTokens(background(t), inputs, &inlay.EmbedOptions{Embedding: kind})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range cases {
			// The model's files ask for the mean, normalised.
			want := map[inlay.Embedding][]float64{inlay.EmbeddingMean: c.Mean, inlay.EmbeddingCLS: c.CLS, inlay.EmbeddingDefault: c.Normalised}[kind]
			if len(vectors[i]) != len(want) {
				t.Fatalf("%s: %d values, not %d", c.Name, len(vectors[i]), len(want))
			}
			for j := range want {
				if math.Abs(float64(vectors[i][j])-want[j]) > 1e-4*c.Deviation {
					t.Fatalf("%s, %d: value %d is %v, transformers has %v", c.Name, kind, j, vectors[i][j], want[j])
				}
			}
		}
	}
	_, err = newSession(t, model).Generate(background(t), inlay.Request{Tokens: inputs[1], MaxTokens: 4})
	if !errors.Is(err, inlay.ErrInvalidArgument) || !strings.Contains(err.Error(), "encoder") {
		t.Errorf("an encoder generates: %v", err)
	}
	if _, err := model.Embed(background(t), []string{"text"}, nil); !errors.Is(err, inlay.ErrUnsupported) {
		t.Errorf("text without a tokenizer: %v", err)
	}
}

func TestEmbedErrors(t *testing.T) {
	engine, model := open(t, pocket)
	if vectors, err := model.Embed(background(t), nil, nil); err != nil || vectors == nil || len(vectors) != 0 {
		t.Errorf("of nothing: %v, %v", vectors, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	long := strings.Repeat("A fox. ", 2000)
	for name, one := range map[string]struct {
		ctx     context.Context
		texts   []string
		options *inlay.EmbedOptions
		want    error
	}{
		"an empty text": {background(t), []string{"A fox.", ""}, nil, inlay.ErrInvalidArgument},
		"a long text":   {background(t), []string{"A fox.", long, "A fox."}, nil, inlay.ErrInvalidArgument},
		"no such kind":  {background(t), []string{"A fox."}, &inlay.EmbedOptions{Embedding: 9}, inlay.ErrInvalidArgument},
		"cancelled":     {ctx, []string{"A fox."}, nil, context.Canceled},
	} {
		if vectors, err := model.Embed(one.ctx, one.texts, one.options); !errors.Is(err, one.want) || vectors != nil {
			t.Errorf("%s: %d vectors, %v", name, len(vectors), err)
		}
	}
	request := inlay.Request{Text: "A fox.", Embedding: inlay.EmbeddingMean, MaxTokens: 4}
	if _, err := newSession(t, model).Submit(background(t), request); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("a generation too: %v", err)
	}
	// The context ends in the middle.
	ctx, cancel = context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	many := make([]string, 2000)
	for i := range many {
		many[i] = fmt.Sprint(i, strings.Repeat(" A fox has a lantern.", 60))
	}
	if _, err := model.Embed(ctx, many, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the middle: %v", err)
	}
	eventually(t, "nothing is left", func() bool {
		s := stats(t, engine)
		return s.RunningRequests == 0 && s.WaitingRequests == 0 && s.Sessions <= 1 && s.KVBlocksUsed == 0
	})
	model.Close()
	if _, err := model.Embed(background(t), []string{"A fox."}, nil); !errors.Is(err, inlay.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
