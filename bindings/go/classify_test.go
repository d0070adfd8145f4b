package inlay_test

import (
	"errors"
	"math"
	"os"
	"testing"

	"inlay.dev/go/inlay"
)

// A cross-encoder, and what transformers makes of single texts and of pairs.
const reranker = "../../tests/data/models/bert_reranker"

func TestClassifyGivesWhatTransformersGives(t *testing.T) {
	data, err := os.ReadFile(reranker + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Deviation float64 `json:"logit_std"`
		Cases     []struct {
			Name   string
			Tokens []int32 `json:"input_ids"`
			Types  []int32 `json:"token_type_ids"`
			Logits []float64
			Text   *string
			Pair   *string `json:"text_pair"`
		}
	}
	unmarshal(t, data, &golden)
	_, model := open(t, reranker)
	near := func(name string, got []float32, want float64) {
		t.Helper()
		if len(got) != 1 || math.Abs(float64(got[0])-want) > 1e-4*golden.Deviation {
			t.Errorf("%s: %v, transformers has %v", name, got, want)
		}
	}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	var query string
	var singles, others []string
	var ofSingles, ofPairs []float64
	for _, c := range golden.Cases {
		request := inlay.Request{Tokens: c.Tokens, TokenTypes: c.Types, Classification: inlay.ClassificationLogits}
		stream, err := newSession(t, model).Submit(background(t), request)
		if err != nil {
			t.Fatal(err)
		}
		event, err := stream.Next(background(t))
		if err != nil || event.Kind != inlay.EventClassification {
			t.Fatal(event, err)
		}
		near(c.Name, event.Logits, c.Logits[0])
		near(c.Name, event.Scores, c.Logits[0])
		switch {
		case c.Pair != nil:
			query = *c.Text
			others, ofPairs = append(others, *c.Pair), append(ofPairs, sigmoid(c.Logits[0]))
		case c.Text != nil:
			singles, ofSingles = append(singles, *c.Text), append(ofSingles, sigmoid(c.Logits[0]))
		}
	}
	// Not the empty one: a Request without any input goes on from the log.
	singles = singles[:len(singles)-1]
	scores, err := model.Classify(background(t), singles, nil)
	if err != nil || len(scores) != 4 {
		t.Fatal(len(scores), err)
	}
	for i, score := range scores {
		near(singles[i], score, ofSingles[i])
	}
	scores, err = model.ClassifyPairs(background(t), query, others, nil)
	if err != nil || len(scores) != 5 {
		t.Fatal(len(scores), err)
	}
	for i, score := range scores {
		near(others[i], score, ofPairs[i])
	}
	request := inlay.Request{Tokens: []int32{5, 6}, TokenTypes: []int32{0}, Classification: inlay.ClassificationLogits}
	if _, err := newSession(t, model).Submit(background(t), request); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("a type of two tokens: %v", err)
	}
}

func TestClassifyNeedsAnEncoder(t *testing.T) {
	_, model := open(t, pocket)
	if _, err := model.Classify(background(t), []string{"A fox."}, nil); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Error(err)
	}
	if _, err := model.ClassifyPairs(background(t), "A fox.", []string{"A den."}, nil); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Error(err)
	}
}
