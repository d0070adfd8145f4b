package inlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"

	"inlay.dev/go/inlay/internal/capi"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string
	Content string
	// Fields are further members that the template reads, such as "tool_calls"; they come before Role and Content of the same
	// name. Values are anything that encoding/json takes.
	Fields map[string]any
}

// MarshalJSON is what the template sees.
func (m Message) MarshalJSON() ([]byte, error) {
	fields := map[string]any{"role": m.Role, "content": m.Content}
	for name, value := range m.Fields {
		fields[name] = value
	}
	return marshal(fields)
}

// System is a message of the role "system".
func System(content string) Message { return Message{Role: "system", Content: content} }

// User is a message of the role "user".
func User(content string) Message { return Message{Role: "user", Content: content} }

// Assistant is a message of the role "assistant".
func Assistant(content string) Message { return Message{Role: "assistant", Content: content} }

// Chat is a conversation, which the model's template makes a text of.
type Chat struct {
	Messages []Message
	Tools    []any // as the template wants them; json.RawMessage keeps the order of members
	// NoGenerationPrompt leaves out what begins the assistant's turn.
	NoGenerationPrompt bool
	// ContinueFinalMessage has the last message go on instead of beginning another: "content", or the name of another member of
	// it, such as "reasoning_content".
	ContinueFinalMessage string
	// Variables are further ones that the template reads. "template", "bos_token", "eos_token" and "now" take the place of the
	// model's.
	Variables map[string]any
}

// Conversation is a Chat of these messages.
func Conversation(messages ...Message) *Chat { return &Chat{Messages: messages} }

func (c *Chat) json() (string, error) {
	object := map[string]any{}
	for name, value := range c.Variables {
		object[name] = value
	}
	messages := c.Messages
	if messages == nil {
		messages = []Message{}
	}
	object["messages"] = messages
	if c.Tools != nil {
		object["tools"] = c.Tools
	}
	object["add_generation_prompt"] = !c.NoGenerationPrompt && c.ContinueFinalMessage == ""
	if c.ContinueFinalMessage != "" {
		object["continue_final_message"] = c.ContinueFinalMessage
	}
	text, err := marshal(object)
	if err != nil {
		return "", &Error{Code: ErrInvalidArgument, Message: fmt.Sprintf("the chat is no JSON: %v", err), cause: err}
	}
	return string(text), nil
}

// marshal is json.Marshal, which would write < and & as escapes.
func marshal(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// RenderChat is the text that a chat becomes. ErrNotFound when the model has no template.
func (m *Model) RenderChat(chat *Chat) (string, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return "", err
	}
	return renderChat(number, chat)
}

// RenderTemplate is RenderChat without a model: with a Jinja template.
func RenderTemplate(template string, chat *Chat) (string, error) {
	if err := checkABI(); err != nil {
		return "", err
	}
	withTemplate := *chat
	withTemplate.Variables = map[string]any{"template": template}
	for name, value := range chat.Variables {
		withTemplate.Variables[name] = value
	}
	return renderChat(0, &withTemplate)
}

func renderChat(model uintptr, chat *Chat) (string, error) {
	json, err := chat.json()
	if err != nil {
		return "", err
	}
	text, err := bytesOf(func(buffer, object *uintptr) int32 { return capi.Inlay_chat_render(model, json, buffer, object) })
	return string(text), err
}
