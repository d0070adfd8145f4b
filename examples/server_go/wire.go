package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"inlay.dev/go/inlay"
)

// What goes over the wire, after https://platform.openai.com/docs/api-reference. Further members of a request are ignored.

// common is what both forms of a generation have.
type common struct {
	Model             string             `json:"model"`
	Stream            bool               `json:"stream"`
	StreamOptions     *streamOptions     `json:"stream_options"`
	MaxTokens         *int               `json:"max_tokens"`
	N                 *int               `json:"n"`
	Stop              oneOrMore          `json:"stop"`
	Seed              *int64             `json:"seed"`
	Temperature       *float32           `json:"temperature"`
	TopP              *float32           `json:"top_p"`
	FrequencyPenalty  float32            `json:"frequency_penalty"`
	PresencePenalty   float32            `json:"presence_penalty"`
	LogitBias         map[string]float32 `json:"logit_bias"`
	User              string             `json:"user"`
	TopK              *int               `json:"top_k"`              // not OpenAI's
	MinP              *float32           `json:"min_p"`              // not OpenAI's
	RepetitionPenalty *float32           `json:"repetition_penalty"` // not OpenAI's
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// oneOrMore is a string or a list of them.
type oneOrMore []string

func (l *oneOrMore) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	if data[0] == '"' {
		var one string
		err := json.Unmarshal(data, &one)
		*l = oneOrMore{one}
		return err
	}
	return json.Unmarshal(data, (*[]string)(l))
}

type chatRequest struct {
	common
	Messages            []map[string]json.RawMessage `json:"messages"`
	Tools               []json.RawMessage            `json:"tools"`
	ToolChoice          json.RawMessage              `json:"tool_choice"`
	ResponseFormat      *struct{ Type string }       `json:"response_format"`
	ContinueFinal       bool                         `json:"continue_final_message"`
	AddGenerationPrompt *bool                        `json:"add_generation_prompt"`
	MaxCompletionTokens *int                         `json:"max_completion_tokens"`
	Logprobs            bool                         `json:"logprobs"`
	TopLogprobs         int                          `json:"top_logprobs"`
}

type completionRequest struct {
	common
	Prompt   json.RawMessage `json:"prompt"`
	Logprobs *int            `json:"logprobs"`
	Suffix   string          `json:"suffix"`
	Echo     bool            `json:"echo"`
	BestOf   *int            `json:"best_of"`
}

type embeddingRequest struct {
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	EncodingFormat string          `json:"encoding_format"`
	Dimensions     *int            `json:"dimensions"`
	User           string          `json:"user"`
}

type embeddingList struct {
	Object string         `json:"object"`
	Data   []embedding    `json:"data"`
	Model  string         `json:"model"`
	Usage  embeddingUsage `json:"usage"`
}

type embedding struct {
	Object string `json:"object"`
	Index  int    `json:"index"`
	Vector any    `json:"embedding"` // numbers, or their bytes
}

type embeddingUsage struct {
	PromptTokens int `json:"prompt_tokens"`
	TotalTokens  int `json:"total_tokens"`
}

// body is a completion, or a piece of one.
type body struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
	Choices []any  `json:"choices"`
	Usage   *usage `json:"usage,omitempty"`
}

type usage struct {
	PromptTokens     int           `json:"prompt_tokens"`
	CompletionTokens int           `json:"completion_tokens"`
	TotalTokens      int           `json:"total_tokens"`
	Details          promptDetails `json:"prompt_tokens_details"`
}

type promptDetails struct {
	CachedTokens int `json:"cached_tokens"`
}

// add counts a choice; a prompt counts once for all of its choices.
func (u *usage) add(f *inlay.Finish, first bool) {
	if first {
		u.PromptTokens += f.PromptTokens
		u.Details.CachedTokens += f.CachedTokens
	}
	u.CompletionTokens += f.GeneratedTokens
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}

type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatMessage  `json:"delta,omitempty"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

type chatLogprob struct {
	tokenLogprob
	Top []tokenLogprob `json:"top_logprobs"`
}

type tokenLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

type completionChoice struct {
	Index        int                 `json:"index"`
	Text         string              `json:"text"`
	Logprobs     *completionLogprobs `json:"logprobs"`
	FinishReason *string             `json:"finish_reason"`
}

type completionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float32            `json:"token_logprobs"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// problem is an error in OpenAI's form.
type problem struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (p *problem) Error() string { return p.Message }

func (p *problem) json() any { return map[string]any{"error": p} }

func refuse(status int, kind, code, format string, values ...any) *problem {
	return &problem{status: status, Type: kind, Code: &code, Message: fmt.Sprintf(format, values...)}
}

func badParameter(parameter, code, format string, values ...any) *problem {
	p := refuse(400, "invalid_request_error", code, format, values...)
	p.Param = &parameter
	return p
}

// apply is what both forms say of a generation, over the model's own settings.
func (c *common) apply(r inlay.Request, limits limits, maxTokens *int) (inlay.Request, error) {
	r.MaxTokens = limits.tokens
	if maxTokens != nil {
		if *maxTokens < 1 || *maxTokens > limits.tokens {
			return r, badParameter("max_tokens", "invalid_value", "max_tokens is %d, allowed: 1 to %d", *maxTokens, limits.tokens)
		}
		r.MaxTokens = *maxTokens
	}
	r.StopStrings = c.Stop
	if c.Temperature != nil {
		r.Temperature = *c.Temperature
	}
	if c.TopP != nil {
		if *c.TopP <= 0 { // 0 stands for off in a Request
			return r, badParameter("top_p", "invalid_value", "top_p is %v, allowed: above 0, to 1", *c.TopP)
		}
		r.TopP = *c.TopP
	}
	if c.TopK != nil {
		r.TopK = *c.TopK
	}
	if c.MinP != nil {
		r.MinP = *c.MinP
	}
	if c.RepetitionPenalty != nil {
		r.RepetitionPenalty = *c.RepetitionPenalty
	}
	r.FrequencyPenalty, r.PresencePenalty = c.FrequencyPenalty, c.PresencePenalty
	if len(c.LogitBias) > 0 {
		r.LogitBias = map[int32]float32{}
		for key, bias := range c.LogitBias {
			token, err := strconv.ParseInt(key, 10, 32)
			if err != nil {
				return r, badParameter("logit_bias", "invalid_value", "logit_bias has %q, which is no token", key)
			}
			r.LogitBias[int32(token)] = bias
		}
	}
	r.ShareKey = shareKey(c.User)
	return r, nil
}

func (c *common) choices(limits limits) (int, error) {
	n := 1
	if c.N != nil {
		n = *c.N
	}
	if n < 1 || n > limits.choices {
		return 0, badParameter("n", "invalid_value", "n is %d, allowed: 1 to %d", n, limits.choices)
	}
	return n, nil
}

func encode(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		// Only floats that are no number, which the library does not report.
		return []byte(`{"error":{"message":"the answer cannot be said in JSON","type":"server_error"}}`)
	}
	return buffer.Bytes()
}
