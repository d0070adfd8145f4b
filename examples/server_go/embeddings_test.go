package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"inlay.dev/go/inlay"
)

type embeddingAnswer struct {
	Object, Model string
	Data          []struct {
		Object    string
		Index     int
		Embedding json.RawMessage
	}
	Usage map[string]int
}

func postEmbeddings(t *testing.T, base, body string) embeddingAnswer {
	t.Helper()
	response, err := http.Post(base+"/v1/embeddings", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 {
		t.Fatalf("%v, %d: %s", err, response.StatusCode, data)
	}
	var got embeddingAnswer
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	for i, one := range got.Data {
		if one.Object != "embedding" || one.Index != i {
			t.Errorf("%d: %+v", i, one)
		}
	}
	if got.Object != "list" {
		t.Errorf("%s", data)
	}
	return got
}

func (a *embeddingAnswer) vectors(t *testing.T) [][]float32 {
	t.Helper()
	list := make([][]float32, len(a.Data))
	for i, one := range a.Data {
		if err := json.Unmarshal(one.Embedding, &list[i]); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// sameVector is for values of at most 1, which were rounded once more or once less: by 2^-24.
func sameVector(a, b []float32) bool {
	for i := range a {
		if len(a) != len(b) || math.Abs(float64(a[i])-float64(b[i])) > 2.4e-7 {
			return false
		}
	}
	return len(a) > 0
}

// What the server ought to say: the library's own, of the same model.
func reference(t *testing.T, path string) *inlay.Model {
	t.Helper()
	engine, err := inlay.NewEngine(&inlay.EngineOptions{Backend: inlay.BackendCPU})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	model, err := engine.LoadModel(context.Background(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func TestEmbeddings(t *testing.T) {
	base, model := start(t), reference(t, pocket)
	texts := []string{"A fox.", "Höher als der Mond 🌙", "<|endoftext|> A lantern in the woods, and nobody near it."}
	// The pocket model's files say nothing of pooling: a decoder's last token is the default.
	want, err := model.Embed(context.Background(), texts, &inlay.EmbedOptions{Embedding: inlay.EmbeddingLast, Normalise: true})
	if err != nil {
		t.Fatal(err)
	}
	var tokens [][]int32
	count := 0
	for i, text := range texts {
		list, err := model.Tokenize(text, inlay.AddSpecial|inlay.ParseSpecial)
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, list)
		count += len(list)
		for _, input := range []any{text, list, []string{text}} {
			got := postEmbeddings(t, base, fmt.Sprintf(`{"input":%s,"model":"pocket-7m"}`, encode(input)))
			vectors := got.vectors(t)
			if len(vectors) != 1 || !sameVector(vectors[0], want[i]) {
				t.Errorf("%s: %v, the library has %v", encode(input), vectors, want[i])
			}
			if got.Usage["prompt_tokens"] != len(list) || got.Usage["total_tokens"] != len(list) || got.Model != "pocket-7m" {
				t.Errorf("%s: %+v", encode(input), got)
			}
		}
	}
	length := 0.0
	for _, x := range want[0] {
		length += float64(x) * float64(x)
	}
	if math.Abs(length-1) > 1e-6 {
		t.Errorf("the length is %v", length)
	}
	for _, input := range []any{texts, tokens} {
		got := postEmbeddings(t, base, fmt.Sprintf(`{"input":%s,"encoding_format":"float","dimensions":%d}`, encode(input), len(want[0])))
		vectors := got.vectors(t)
		if len(vectors) != len(want) || got.Usage["prompt_tokens"] != count {
			t.Fatalf("%d vectors, %v", len(vectors), got.Usage)
		}
		for i := range want {
			if !sameVector(vectors[i], want[i]) {
				t.Errorf("%d: %v, the library has %v", i, vectors[i], want[i])
			}
		}
	}
	got := postEmbeddings(t, base, fmt.Sprintf(`{"input":%s,"encoding_format":"base64"}`, encode(texts)))
	for i, one := range got.Data {
		var text string
		if err := json.Unmarshal(one.Embedding, &text); err != nil {
			t.Fatal(err)
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(data) != 4*len(want[i]) {
			t.Fatalf("%d bytes, %v", len(data), err)
		}
		for j, x := range want[i] {
			got := math.Float32frombits(binary.LittleEndian.Uint32(data[4*j:]))
			if !sameVector([]float32{got}, []float32{x}) {
				t.Errorf("%d: value %d is %v, not %v", i, j, got, x)
			}
		}
	}
}

// As many as there may be, of which not all are under way at once.
func TestManyEmbeddings(t *testing.T) {
	base := start(t)
	texts := make([]string, maxEmbeddings)
	for i := range texts {
		texts[i] = fmt.Sprintf("Fox %d", i%100)
	}
	vectors := func() [][]float32 {
		got := postEmbeddings(t, base, fmt.Sprintf(`{"input":%s}`, encode(texts)))
		return got.vectors(t)
	}()
	if len(vectors) != len(texts) {
		t.Fatalf("%d vectors", len(vectors))
	}
	for i := range vectors {
		if !sameVector(vectors[i], vectors[i%100]) {
			t.Fatalf("%d is not %d", i, i%100)
		}
	}
	// Whoever goes away takes theirs along. Texts that begin alike would be read
	// once, and done before that.
	texts = texts[:600]
	for i := range texts {
		texts[i] = fmt.Sprint(i) + strings.Repeat(" A fox has a lantern.", 200)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/embeddings", strings.NewReader(fmt.Sprintf(`{"input":%s}`, encode(texts))))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		t.Errorf("%d within half a second", response.StatusCode)
		response.Body.Close()
	}
	waitForMetric(t, base, "inlay_sessions", "0")
}

func TestEncoder(t *testing.T) {
	const bert = "../../tests/data/models/bert"
	base := startModel(t, bert)
	want, err := reference(t, bert).EmbedTokens(context.Background(), [][]int32{{3, 1, 4, 1, 5}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := postEmbeddings(t, base, `{"input":[3,1,4,1,5]}`)
	if vectors := got.vectors(t); len(vectors) != 1 || !sameVector(vectors[0], want[0]) {
		t.Errorf("%v, the library has %v", vectors, want)
	}
	for _, c := range []struct{ path, body, code string }{
		{"/v1/completions", `{"prompt":[3,1,4]}`, "invalid_argument"},
		{"/v1/embeddings", `{"input":"text"}`, "unsupported"}, // it has no tokenizer
	} {
		status, problem := post(t, base+c.path, c.body)
		if status != 400 || at(problem, "error", "type") != "invalid_request_error" || at(problem, "error", "code") != c.code {
			t.Errorf("%s: %d %v", c.path, status, problem)
		}
	}
}
