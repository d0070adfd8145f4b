package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"inlay.dev/go/inlay"
)

// chat answers /v1/chat/completions.
func (s *server) chat(w http.ResponseWriter, r *http.Request) error {
	var request chatRequest
	if err := decode(r, &request); err != nil {
		return err
	}
	if err := s.checkModel(request.Model); err != nil {
		return err
	}
	chat, err := request.conversation()
	if err != nil {
		return err
	}
	maxTokens := request.MaxTokens
	if request.MaxCompletionTokens != nil {
		maxTokens = request.MaxCompletionTokens
	}
	base, err := request.apply(s.defaults, s.limits, maxTokens)
	if err != nil {
		return err
	}
	base.Chat = chat
	if request.TopLogprobs < 0 || request.TopLogprobs > 20 || request.TopLogprobs > 0 && !request.Logprobs {
		return badParameter("top_logprobs", "invalid_value", "top_logprobs is %d, allowed: 0 to 20, with logprobs", request.TopLogprobs)
	}
	base.Logprobs, base.TopLogprobs = request.Logprobs, request.TopLogprobs
	n, err := request.choices(s.limits)
	if err != nil {
		return err
	}
	return s.generate(w, r, &job{common: &request.common, requests: []inlay.Request{base}, n: n, form: chatForm{s}})
}

// conversation is what the template sees: messages and tools as they came, but text parts joined, and arguments of calls as objects.
func (r *chatRequest) conversation() (*inlay.Chat, error) {
	if len(r.Messages) == 0 {
		return nil, badParameter("messages", "invalid_value", "messages is empty")
	}
	if r.ResponseFormat != nil && r.ResponseFormat.Type != "text" {
		return nil, badParameter("response_format", "unsupported", "response_format %q is not supported, %q is", r.ResponseFormat.Type, "text")
	}
	chat := &inlay.Chat{NoGenerationPrompt: r.AddGenerationPrompt != nil && !*r.AddGenerationPrompt}
	if r.ContinueFinal {
		if r.AddGenerationPrompt != nil && *r.AddGenerationPrompt {
			return nil, badParameter("continue_final_message", "invalid_value",
				"continue_final_message and add_generation_prompt are both true, allowed: one of them")
		}
		chat.ContinueFinalMessage = "content"
	}
	for i, fields := range r.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		var message inlay.Message
		if err := json.Unmarshal(fields["role"], &message.Role); err != nil || message.Role == "" {
			return nil, badParameter(at+".role", "invalid_value", "%s has no role", at)
		}
		content, err := textOf(fields["content"], at+".content")
		if err != nil {
			return nil, err
		}
		message.Content = content
		message.Fields = map[string]any{}
		for name, value := range fields {
			switch name {
			case "role", "content":
			case "tool_calls":
				message.Fields[name] = callsOf(value)
			default:
				message.Fields[name] = value
			}
		}
		chat.Messages = append(chat.Messages, message)
	}
	switch choice := string(r.ToolChoice); choice {
	case `"none"`:
	case "", "null", `"auto"`:
		for _, tool := range r.Tools {
			chat.Tools = append(chat.Tools, tool)
		}
	default:
		return nil, badParameter("tool_choice", "unsupported", `tool_choice is %s, allowed: "none" and "auto"`, choice)
	}
	return chat, nil
}

// textOf is a message's content: a string, null, or a list of parts.
func textOf(content json.RawMessage, at string) (string, error) {
	if len(content) == 0 || string(content) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", badParameter(at, "invalid_type", "%s is neither a string nor a list of parts", at)
	}
	var joined strings.Builder
	for _, part := range parts {
		if part.Type != "text" {
			return "", badParameter(at, "unsupported", "%s has a part of type %q, which is not supported", at, part.Type)
		}
		joined.WriteString(part.Text)
	}
	return joined.String(), nil
}

// callsOf makes objects of the arguments, which OpenAI writes as JSON in a string; templates want the object.
func callsOf(value json.RawMessage) any {
	var calls []map[string]json.RawMessage
	if json.Unmarshal(value, &calls) != nil {
		return value
	}
	for _, call := range calls {
		var function map[string]json.RawMessage
		var arguments string
		if json.Unmarshal(call["function"], &function) != nil || json.Unmarshal(function["arguments"], &arguments) != nil ||
			!json.Valid([]byte(arguments)) {
			continue
		}
		function["arguments"] = json.RawMessage(arguments)
		call["function"] = encode(function)
	}
	return calls
}

// chatForm is how a chat's answer looks.
type chatForm struct{ s *server }

func (chatForm) id() string     { return "chatcmpl-" }
func (chatForm) object() string { return "chat.completion" }
func (chatForm) piece() string  { return "chat.completion.chunk" }

func (chatForm) first(index int) any {
	empty := ""
	return chatChoice{Index: index, Delta: &chatMessage{Role: "assistant", Content: &empty}}
}

func (f chatForm) next(index int, text string, _ int, logprobs []inlay.TokenLogprobs) any {
	return chatChoice{Index: index, Delta: &chatMessage{Content: &text}, Logprobs: f.logprobs(logprobs)}
}

func (chatForm) last(index int, reason string) any {
	return chatChoice{Index: index, Delta: &chatMessage{}, FinishReason: &reason}
}

func (f chatForm) whole(index int, text string, logprobs []inlay.TokenLogprobs, reason string) any {
	return chatChoice{Index: index, Message: &chatMessage{Role: "assistant", Content: &text}, Logprobs: f.logprobs(logprobs), FinishReason: &reason}
}

func (f chatForm) logprobs(list []inlay.TokenLogprobs) *chatLogprobs {
	if len(list) == 0 {
		return nil
	}
	result := &chatLogprobs{}
	for _, entry := range list {
		one := chatLogprob{tokenLogprob: f.logprob(entry.TokenLogprob), Top: []tokenLogprob{}}
		for _, other := range entry.Top {
			one.Top = append(one.Top, f.logprob(other))
		}
		result.Content = append(result.Content, one)
	}
	return result
}

func (f chatForm) logprob(entry inlay.TokenLogprob) tokenLogprob {
	text := f.s.tokenText(entry.Token)
	result := tokenLogprob{Token: text, Logprob: entry.Logprob}
	// A part of a code point has no text, and its bytes cannot be told from that.
	if !strings.ContainsRune(text, '\uFFFD') {
		result.Bytes = []int{}
		for _, b := range []byte(text) {
			result.Bytes = append(result.Bytes, int(b))
		}
	}
	return result
}

func (s *server) tokenText(token int32) string {
	text, err := s.model.Detokenize([]int32{token}, 0)
	if err != nil {
		return ""
	}
	return text
}
