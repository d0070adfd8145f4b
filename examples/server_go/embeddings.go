package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"

	"inlay.dev/go/inlay"
)

const maxEmbeddings = 2048 // of one request, as OpenAI has it

// embeddings answers /v1/embeddings.
func (s *server) embeddings(w http.ResponseWriter, r *http.Request) error {
	var request embeddingRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	if err := s.checkModel(request.Model); err != nil {
		return err
	}
	info, err := s.model.Info()
	if err != nil {
		return err
	}
	switch format := request.EncodingFormat; format {
	case "", "float", "base64":
	default:
		return badParameter("encoding_format", "invalid_value", `encoding_format is %q, allowed: "float" and "base64"`, format)
	}
	tokens, err := s.embeddingInputs(&request, info.MaxContext)
	if err != nil {
		return err
	}
	vectors, err := s.model.EmbedTokens(r.Context(), tokens, &inlay.EmbedOptions{ShareKey: shareKey(request.User)})
	if err != nil {
		return err
	}
	// Known from a vector alone: layers behind the pooling may change its length.
	if d := request.Dimensions; d != nil && len(vectors) > 0 && *d != len(vectors[0]) {
		return badParameter("dimensions", "unsupported", "dimensions is %d, the model has %d", *d, len(vectors[0]))
	}
	list := embeddingList{Object: "list", Data: make([]embedding, len(vectors)), Model: s.name}
	for i, vector := range vectors {
		normalise(vector)
		list.Data[i] = embedding{Object: "embedding", Index: i, Vector: vector}
		if request.EncodingFormat == "base64" {
			list.Data[i].Vector = littleEndian(vector)
		}
		list.Usage.PromptTokens += len(tokens[i])
	}
	list.Usage.TotalTokens = list.Usage.PromptTokens
	return answer(w, list)
}

// embeddingInputs are tokens, also where texts were given: their number is what usage wants.
func (s *server) embeddingInputs(request *embeddingRequest, maxContext int) ([][]int32, error) {
	requests, err := inputs("input", request.Input, inlay.Request{})
	if err != nil {
		return nil, err
	}
	if len(requests) > maxEmbeddings {
		return nil, badParameter("input", "invalid_value", "input has %d members, allowed: 1 to %d", len(requests), maxEmbeddings)
	}
	list := make([][]int32, len(requests))
	for i, one := range requests {
		at := "input"
		if len(requests) > 1 {
			at = fmt.Sprintf("input[%d]", i)
		}
		if list[i] = one.Tokens; one.Text != "" {
			list[i], err = s.model.Tokenize(one.Text, inlay.AddSpecial|inlay.ParseSpecial)
			if err != nil {
				return nil, err
			}
		}
		switch n := len(list[i]); {
		case n == 0:
			return nil, badParameter(at, "invalid_value", "%s is empty", at)
		case n > maxContext:
			return nil, badParameter(at, "context_length_exceeded", "%s has %d tokens, allowed: %d", at, n, maxContext)
		}
	}
	return list, nil
}

// normalise makes the length 1, which OpenAI's vectors have. EmbeddingDefault does so only where the model's files ask for it.
func normalise(vector []float32) {
	squares := 0.0
	for _, x := range vector {
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return
	}
	scale := 1 / math.Sqrt(squares)
	for i, x := range vector {
		vector[i] = float32(float64(x) * scale)
	}
}

func littleEndian(vector []float32) string {
	bytes := make([]byte, 4*len(vector))
	for i, value := range vector {
		binary.LittleEndian.PutUint32(bytes[4*i:], math.Float32bits(value))
	}
	return base64.StdEncoding.EncodeToString(bytes)
}
