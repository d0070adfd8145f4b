package main

import (
	"encoding/json"
	"net/http"

	"inlay.dev/go/inlay"
)

// completions answers /v1/completions.
func (s *server) completions(w http.ResponseWriter, r *http.Request) error {
	var request completionRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	if err := s.checkModel(request.Model); err != nil {
		return err
	}
	switch {
	case request.Suffix != "":
		return badParameter("suffix", "unsupported", "suffix is not supported")
	case request.Echo:
		return badParameter("echo", "unsupported", "echo is not supported")
	case request.BestOf != nil && *request.BestOf != 1:
		return badParameter("best_of", "unsupported", "best_of is %d, allowed: 1", *request.BestOf)
	}
	maxTokens := request.MaxTokens
	if maxTokens == nil {
		sixteen := 16 // OpenAI's default
		maxTokens = &sixteen
	}
	base, err := request.apply(s.defaults, s.limits, maxTokens)
	if err != nil {
		return err
	}
	if request.Logprobs != nil {
		if *request.Logprobs < 0 || *request.Logprobs > 20 {
			return badParameter("logprobs", "invalid_value", "logprobs is %d, allowed: 0 to 20", *request.Logprobs)
		}
		base.Logprobs, base.TopLogprobs = true, *request.Logprobs
	}
	n, err := request.choices(s.limits)
	if err != nil {
		return err
	}
	requests, err := inputs("prompt", request.Prompt, base)
	if err != nil {
		return err
	}
	if len(requests)*n > s.limits.choices {
		return badParameter("prompt", "invalid_value", "%d prompts with %d choices each are %d, allowed: %d", len(requests), n,
			len(requests)*n, s.limits.choices)
	}
	return s.generate(w, r, &job{common: &request.common, requests: requests, n: n, form: completionForm{s}})
}

// inputs are a text, tokens, or a list of either.
func inputs(name string, value json.RawMessage, base inlay.Request) ([]inlay.Request, error) {
	var text string
	var texts []string
	var tokens []int32
	var lists [][]int32
	requests := []inlay.Request{}
	ofTokens := func(tokens []int32) {
		base.Text, base.Tokens = "", tokens
		requests = append(requests, base)
	}
	ofText := func(text string) {
		base.Text, base.Tokens = text, nil
		requests = append(requests, base)
	}
	switch {
	case len(value) == 0 || string(value) == "null":
		return nil, badParameter(name, "missing", "%s is missing", name)
	case json.Unmarshal(value, &text) == nil:
		ofText(text)
	case json.Unmarshal(value, &tokens) == nil && len(tokens) > 0:
		ofTokens(tokens)
	case json.Unmarshal(value, &texts) == nil && len(texts) > 0:
		for _, text := range texts {
			ofText(text)
		}
	case json.Unmarshal(value, &lists) == nil && len(lists) > 0:
		for _, tokens := range lists {
			ofTokens(tokens)
		}
	default:
		return nil, badParameter(name, "invalid_type", "%s is neither a string, nor tokens, nor a list of either", name)
	}
	return requests, nil
}

// completionForm is how a completion's answer looks.
type completionForm struct{ s *server }

func (completionForm) id() string     { return "cmpl-" }
func (completionForm) object() string { return "text_completion" }
func (completionForm) piece() string  { return "text_completion" }

func (completionForm) first(int) any { return nil }

func (f completionForm) next(index int, text string, offset int, logprobs []inlay.TokenLogprobs) any {
	return completionChoice{Index: index, Text: text, Logprobs: f.logprobs(logprobs, offset)}
}

func (completionForm) last(index int, reason string) any {
	return completionChoice{Index: index, FinishReason: &reason}
}

func (f completionForm) whole(index int, text string, logprobs []inlay.TokenLogprobs, reason string) any {
	return completionChoice{Index: index, Text: text, Logprobs: f.logprobs(logprobs, 0), FinishReason: &reason}
}

func (f completionForm) logprobs(list []inlay.TokenLogprobs, offset int) *completionLogprobs {
	if len(list) == 0 {
		return nil
	}
	result := &completionLogprobs{}
	for _, entry := range list {
		text := f.s.tokenText(entry.Token)
		top := map[string]float32{}
		for _, other := range entry.Top {
			top[f.s.tokenText(other.Token)] = other.Logprob
		}
		result.Tokens = append(result.Tokens, text)
		result.TokenLogprobs = append(result.TokenLogprobs, entry.Logprob)
		result.TopLogprobs = append(result.TopLogprobs, top)
		result.TextOffset = append(result.TextOffset, offset)
		offset += len([]rune(text))
	}
	return result
}
