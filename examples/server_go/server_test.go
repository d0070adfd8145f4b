package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const pocket = "../models/pocket-7m"

// The test program is the server too, when it is told to be: for tests that need a process.
func TestMain(m *testing.M) {
	if os.Getenv("INLAY_TEST_SERVER") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// start runs a server until the test ends, and gives its address.
func start(t *testing.T, arguments ...string) string {
	t.Helper()
	return startModel(t, pocket, arguments...)
}

func startModel(t *testing.T, model string, arguments ...string) string {
	t.Helper()
	o, err := parse(append(arguments, "-listen", "127.0.0.1:0", "-grace", "1s", model))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	address, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- run(ctx, o, func(a string) { address <- a }) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-address:
		return "http://" + a
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	return ""
}

func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return read(t, response)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(data)
}

func read(t *testing.T, response *http.Response) (int, map[string]any) {
	t.Helper()
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return response.StatusCode, object
}

// at follows a path of names and numbers into JSON.
func at(value any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			object, _ := value.(map[string]any)
			value = object[step]
		case int:
			list, _ := value.([]any)
			if step >= len(list) {
				return nil
			}
			value = list[step]
		}
	}
	return value
}

// events reads a stream's pieces up to [DONE].
func events(t *testing.T, url, body string) []map[string]any {
	t.Helper()
	list, err := tryEvents(url, body)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func tryEvents(url, body string) ([]map[string]any, error) {
	response, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		data, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%d, %s: %s", response.StatusCode, kind, data)
	}
	var list []map[string]any
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
		case line == "data: [DONE]":
			return list, nil
		case strings.HasPrefix(line, "data: "):
			var object map[string]any
			if err := json.Unmarshal([]byte(line[6:]), &object); err != nil {
				return nil, fmt.Errorf("%v: %s", err, line)
			}
			list = append(list, object)
		default:
			return nil, fmt.Errorf("a line is %q", line)
		}
	}
	return list, fmt.Errorf("no [DONE] after %d events: %v", len(list), lines.Err())
}

const question = `"messages":[{"role":"user","content":"Tell a story about a fox and a lantern."}]`

func TestChat(t *testing.T) {
	url := start(t) + "/v1/chat/completions"
	status, whole := post(t, url, `{"model":"pocket-7m",`+question+`}`)
	text, _ := at(whole, "choices", 0, "message", "content").(string)
	if status != 200 || !strings.Contains(text, "lantern") || at(whole, "choices", 0, "finish_reason") != "stop" ||
		at(whole, "choices", 0, "message", "role") != "assistant" || at(whole, "object") != "chat.completion" {
		t.Fatalf("%d: %v", status, whole)
	}
	prompt, completion := at(whole, "usage", "prompt_tokens").(float64), at(whole, "usage", "completion_tokens").(float64)
	if prompt < 5 || completion < 20 || at(whole, "usage", "total_tokens") != prompt+completion {
		t.Errorf("%v", at(whole, "usage"))
	}

	list := events(t, url, `{`+question+`,"stream":true,"stream_options":{"include_usage":true}}`)
	streamed := ""
	for i, event := range list {
		if at(event, "object") != "chat.completion.chunk" || at(event, "id") != at(list[0], "id") {
			t.Errorf("event %d: %v", i, event)
		}
		if piece, ok := at(event, "choices", 0, "delta", "content").(string); ok {
			streamed += piece
		}
	}
	last, before := list[len(list)-1], list[len(list)-2]
	if streamed != text || at(list[0], "choices", 0, "delta", "role") != "assistant" || at(before, "choices", 0, "finish_reason") != "stop" {
		t.Errorf("streamed %q, whole %q", streamed, text)
	}
	if at(last, "usage", "completion_tokens") != completion || len(at(last, "choices").([]any)) != 0 {
		t.Errorf("the last is %v", last)
	}
	// The second time its prompt was there.
	if cached := at(last, "usage", "prompt_tokens_details", "cached_tokens").(float64); cached < prompt-1 {
		t.Errorf("%v of %v tokens were cached", cached, prompt)
	}
}

func TestSamplingStopsAndChoices(t *testing.T) {
	base := start(t)
	url := base + "/v1/chat/completions"
	draw := func(more string) (texts []string) {
		status, got := post(t, url, `{`+question+`,"max_completion_tokens":24,"temperature":1.3,`+more+`}`)
		if status != 200 {
			t.Fatalf("%d: %v", status, got)
		}
		for _, c := range at(got, "choices").([]any) {
			texts = append(texts, at(c, "message", "content").(string))
		}
		return texts
	}
	one, two := draw(`"seed":7,"n":3`), draw(`"seed":7,"n":3`)
	if len(one) != 3 || strings.Join(one, "|") != strings.Join(two, "|") || one[0] == one[1] || one[1] == one[2] {
		t.Errorf("%q and %q", one, two)
	}
	if a, b := draw(`"top_p":0.9`), draw(`"top_p":0.9`); a[0] == b[0] {
		t.Errorf("without a seed twice %q", a)
	}
	_, got := post(t, url, `{`+question+`,"stop":["fox","lantern"]}`)
	if text := at(got, "choices", 0, "message", "content").(string); strings.Contains(text, "fox") || at(got, "choices", 0, "finish_reason") != "stop" {
		t.Errorf("%q", text)
	}
	_, got = post(t, url, `{`+question+`,"stop":"zebra","max_tokens":3}`)
	if at(got, "choices", 0, "finish_reason") != "length" {
		t.Errorf("%v", got)
	}

	_, got = post(t, base+"/v1/completions", `{"prompt":"Once upon a time,"}`)
	if text := at(got, "choices", 0, "text").(string); !strings.HasPrefix(text, " there") || at(got, "usage", "completion_tokens") != 16.0 {
		t.Errorf("%v", got)
	}
	_, got = post(t, base+"/v1/completions", `{"prompt":["Once upon a time,",", 3","x"],"max_tokens":4,"n":2}`)
	if choices := at(got, "choices").([]any); len(choices) != 6 || at(choices[5], "index") != 5.0 ||
		!strings.HasPrefix(at(choices[1], "text").(string), " there") {
		t.Errorf("%v", got)
	}
	_, got = post(t, base+"/v1/completions", `{"prompt":[0,5,6,7],"max_tokens":2,"logit_bias":{"300":1000}}`)
	if at(got, "usage", "prompt_tokens") != 4.0 {
		t.Errorf("%v", got)
	}
	texts := map[float64]string{}
	for _, event := range events(t, base+"/v1/completions", `{"prompt":["Once upon a time,","One day"],"max_tokens":6,"stream":true}`) {
		texts[at(event, "choices", 0, "index").(float64)] += at(event, "choices", 0, "text").(string)
	}
	if len(texts) != 2 || !strings.HasPrefix(texts[0], " there") {
		t.Errorf("%v", texts)
	}
}

func TestLogprobs(t *testing.T) {
	base := start(t)
	_, got := post(t, base+"/v1/chat/completions", `{`+question+`,"max_tokens":4,"logprobs":true,"top_logprobs":2}`)
	list, _ := at(got, "choices", 0, "logprobs", "content").([]any)
	if len(list) != 4 {
		t.Fatalf("%v", got)
	}
	joined := ""
	for _, entry := range list {
		joined += at(entry, "token").(string)
		if at(entry, "logprob").(float64) > 0 || at(entry, "top_logprobs", 0, "token") != at(entry, "token") ||
			at(entry, "top_logprobs", 1, "logprob").(float64) > at(entry, "logprob").(float64) || at(entry, "bytes", 0) == nil {
			t.Errorf("%v", entry)
		}
	}
	if joined != at(got, "choices", 0, "message", "content") {
		t.Errorf("%q is not %v", joined, at(got, "choices", 0, "message", "content"))
	}
	_, got = post(t, base+"/v1/completions", `{"prompt":"Once","max_tokens":3,"logprobs":2}`)
	if tokens, _ := at(got, "choices", 0, "logprobs", "tokens").([]any); len(tokens) != 3 ||
		len(at(got, "choices", 0, "logprobs", "top_logprobs", 0).(map[string]any)) != 2 ||
		at(got, "choices", 0, "logprobs", "text_offset", 1) != float64(len(tokens[0].(string))) {
		t.Errorf("%v", got)
	}
}

func TestConversations(t *testing.T) {
	var request chatRequest
	if err := json.Unmarshal([]byte(`{"messages":[
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b😀"}],"name":"Zoë"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\":1,\"a\":2}"}}]}],
		"tools":[{"type":"function","function":{"z":1,"a":2}}],"tool_choice":"auto"}`), &request); err != nil {
		t.Fatal(err)
	}
	chat, err := request.conversation()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(chat.Messages)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"content":"ab😀","name":"Zoë","role":"user"},` +
		`{"content":"","role":"assistant","tool_calls":[{"function":{"arguments":{"z":1,"a":2},"name":"f"},"id":"1","type":"function"}]}]`
	if string(text) != want {
		t.Errorf("%s\nis not\n%s", text, want)
	}
	if tools, _ := json.Marshal(chat.Tools); string(tools) != `[{"type":"function","function":{"z":1,"a":2}}]` {
		t.Errorf("%s", tools)
	}
	request.ToolChoice = json.RawMessage(`"none"`)
	if chat, err := request.conversation(); err != nil || chat.Tools != nil {
		t.Errorf("%v, %v", chat, err)
	}
	// What is begun goes on.
	status, got := post(t, start(t)+"/v1/chat/completions", `{"messages":[{"role":"user","content":"946 - 73"},
		{"role":"assistant","content":"87"}],"continue_final_message":true}`)
	if content := at(got, "choices", 0, "message", "content"); status != 200 || content != "3" {
		t.Errorf("%v", got)
	}
	// Tools reach the template of the model that is served: pocket-7m's ignores them, and answers.
	url := start(t) + "/v1/chat/completions"
	if status, got := post(t, url, `{`+question+`,"max_tokens":2,"tools":[{"type":"function","function":{"name":"f"}}]}`); status != 200 {
		t.Errorf("%v", got)
	}
}

func TestErrors(t *testing.T) {
	base := start(t, "-max-tokens", "300", "-max-body", "100000")
	long := strings.Repeat("word ", 3000)
	for _, c := range []struct {
		path, body string
		status     int
		kind, code string
	}{
		{"/v1/chat/completions", `{`, 400, "invalid_request_error", "invalid_json"},
		{"/v1/chat/completions", `{"messages":7}`, 400, "invalid_request_error", "invalid_type"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{"messages":[{"content":"x"}]}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "invalid_request_error", "unsupported"},
		{"/v1/chat/completions", `{` + question + `,"model":"gpt-4"}`, 404, "invalid_request_error", "model_not_found"},
		{"/v1/chat/completions", `{` + question + `,"temperature":-1}`, 400, "invalid_request_error", "invalid_argument"},
		{"/v1/chat/completions", `{` + question + `,"max_tokens":301}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{` + question + `,"max_tokens":0}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{` + question + `,"n":9}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{` + question + `,"top_logprobs":2}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{` + question + `,"logit_bias":{"x":1}}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{` + question + `,"response_format":{"type":"json_object"}}`, 400, "invalid_request_error", "unsupported"},
		{"/v1/chat/completions", `{` + question + `,"tool_choice":"required"}`, 400, "invalid_request_error", "unsupported"},
		{"/v1/chat/completions", `{` + question + `,"continue_final_message":true,"add_generation_prompt":true}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"` + long + `"}]}`, 400, "invalid_request_error", "invalid_argument"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"` + strings.Repeat(long, 10) + `"}]}`, 413, "invalid_request_error", "body_too_large"},
		{"/v1/completions", `{}`, 400, "invalid_request_error", "missing"},
		{"/v1/completions", `{"prompt":{"a":1}}`, 400, "invalid_request_error", "invalid_type"},
		{"/v1/completions", `{"prompt":"x","echo":true}`, 400, "invalid_request_error", "unsupported"},
		{"/v1/completions", `{"prompt":[99999999]}`, 400, "invalid_request_error", "invalid_argument"},
		{"/v1/embeddings", `{}`, 400, "invalid_request_error", "missing"},
		{"/v1/embeddings", `{"input":""}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/embeddings", `{"input":["x",""]}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/embeddings", `{"input":[[1],[]]}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/embeddings", `{"input":{"a":1}}`, 400, "invalid_request_error", "invalid_type"},
		{"/v1/embeddings", `{"input":["x",1]}`, 400, "invalid_request_error", "invalid_type"},
		{"/v1/embeddings", `{"input":[99999999]}`, 400, "invalid_request_error", "invalid_argument"},
		{"/v1/embeddings", `{"input":"` + strings.Repeat("a fox ", 5000) + `"}`, 400, "invalid_request_error", "context_length_exceeded"},
		{"/v1/embeddings", `{"input":["x"` + strings.Repeat(`,"x"`, 2048) + `]}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/embeddings", `{"input":"x","encoding_format":"hex"}`, 400, "invalid_request_error", "invalid_value"},
		{"/v1/embeddings", `{"input":"x","dimensions":3}`, 400, "invalid_request_error", "unsupported"},
		{"/v1/embeddings", `{"input":"x","model":"gpt"}`, 404, "invalid_request_error", "model_not_found"},
		{"/v1/nothing", `{}`, 404, "invalid_request_error", "unknown_url"},
		{"/v1/models", `{}`, 405, "invalid_request_error", "method_not_allowed"},
	} {
		status, got := post(t, base+c.path, c.body)
		message, _ := at(got, "error", "message").(string)
		if status != c.status || at(got, "error", "type") != c.kind || at(got, "error", "code") != c.code || message == "" {
			t.Errorf("%s %.60s: %d %v, wanted %d %s %s", c.path, c.body, status, got, c.status, c.kind, c.code)
		}
	}
	// An error of a stream that has not begun is one like any other.
	if status, _ := post(t, base+"/v1/chat/completions", `{`+question+`,"temperature":-1,"stream":true}`); status != 400 {
		t.Errorf("%d", status)
	}
	request, _ := http.NewRequest("GET", base+"/v1/models", nil)
	request.Header.Set("Origin", "https://example.com")
	if response, err := http.DefaultClient.Do(request); err != nil || response.StatusCode != 403 {
		t.Errorf("%v, %v", response, err)
	}
	request.Header.Del("Origin")
	request.Host = "example.com"
	if response, err := http.DefaultClient.Do(request); err != nil || response.StatusCode != 403 {
		t.Errorf("%v, %v", response, err)
	}
}

func TestModelsHealthAndKeys(t *testing.T) {
	t.Setenv("INLAY_API_KEY", "secret")
	base := start(t, "-name", "my model")
	if status, text := get(t, base+"/health"); status != 200 || !strings.Contains(text, `"ok"`) {
		t.Errorf("%d %s", status, text)
	}
	for key, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer secret": 200} {
		request, _ := http.NewRequest("GET", base+"/v1/models", nil)
		request.Header.Set("Authorization", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		status, got := read(t, response)
		if status != want || want == 200 && at(got, "data", 0, "id") != "my model" {
			t.Errorf("%q: %d %v", key, status, got)
		}
	}
}

func waitForMetric(t *testing.T, base, name, want string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		_, text := get(t, base+"/metrics")
		if strings.Contains(text, "\n"+name+" "+want+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not %s:\n%s", name, want, text)
		}
	}
}

func TestManyStreams(t *testing.T) {
	base := start(t)
	ask := func(i int) string {
		return fmt.Sprintf(`{"messages":[{"role":"user","content":"Tell a story about a fox and %d lanterns."}],"max_tokens":24,`+
			`"temperature":0.9,"seed":%d,"stream":true}`, i, i)
	}
	text := func(i int) (string, error) {
		list, err := tryEvents(base+"/v1/chat/completions", ask(i))
		joined := ""
		for _, event := range list {
			piece, _ := at(event, "choices", 0, "delta", "content").(string)
			joined += piece
		}
		return joined, err
	}
	const streams = 64
	var alone [streams]string
	for i := range alone {
		var err error
		if alone[i], err = text(i); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := 0; i < streams; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			if got, err := text(i); err != nil || got != alone[i] || got == "" {
				t.Errorf("stream %d: %v, %q, alone %q", i, err, got, alone[i])
			}
		}(i)
	}
	wg.Wait()
	// An answer is counted when its handler returns, which is after the client has all of it.
	waitForMetric(t, base, `inlay_server_answers_total{path="/v1/chat/completions",code="200"}`, "128")
}

// Clients that go away in the middle: their generations end, and their sessions are given back.
func TestDisconnects(t *testing.T) {
	base := start(t, "-max-concurrent", "64")
	address := strings.TrimPrefix(base, "http://")
	var wg sync.WaitGroup
	for i := 0; i < 32; i++ {
		wg.Add(1)
		go func(i int) {
			defer wg.Done()
			connection, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer connection.Close()
			stream := i%2 == 0 // without it, the client waits for the whole
			body := fmt.Sprintf(`{"prompt":"Once upon a time,","max_tokens":1900,"logit_bias":{"6":-1000,"1":-1000},"stream":%v}`, stream)
			fmt.Fprintf(connection, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				address, len(body), body)
			if stream {
				if _, err := bufio.NewReader(connection).ReadString('}'); err != nil {
					t.Error(err)
				}
			} else {
				time.Sleep(50 * time.Millisecond)
			}
		}(i)
	}
	wg.Wait()
	waitForMetric(t, base, "inlay_server_requests_running", "0")
	waitForMetric(t, base, "inlay_requests_running", "0")
	waitForMetric(t, base, `inlay_requests_finished_total{reason="cancelled"}`, "32")
	waitForMetric(t, base, "inlay_sessions", "0")
}

const endless = `{"prompt":"Once upon a time,","max_tokens":2000,"logit_bias":{"6":-1000,"1":-1000},"stream":true,"n":8}`

func TestTooManyRequests(t *testing.T) {
	base := start(t, "-max-concurrent", "1")
	first, err := http.Post(base+"/v1/completions", "application/json", strings.NewReader(endless))
	if err != nil || first.StatusCode != 200 {
		t.Fatal(first, err)
	}
	second, err := http.Post(base+"/v1/completions", "application/json", strings.NewReader(endless))
	if err != nil || second.StatusCode != 429 || second.Header.Get("Retry-After") == "" {
		t.Errorf("%v, %v", second, err)
	}
	second.Body.Close()
	first.Body.Close()
	waitForMetric(t, base, "inlay_server_requests_running", "0")
}

func TestTimeLimit(t *testing.T) {
	base := start(t, "-max-duration", "400ms")
	response, err := http.Post(base+"/v1/completions", "application/json", strings.NewReader(endless))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil || !bytes.Contains(data, []byte(`"timeout_error"`)) || bytes.Contains(data, []byte("[DONE]")) {
		t.Errorf("%v: %.300s", err, data[max(0, len(data)-300):])
	}
	// In a stream it is an event; where the machine was too slow to begin one, the answer.
	if response.StatusCode != 200 && response.StatusCode != 504 {
		t.Errorf("%d", response.StatusCode)
	}
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}

// The process: started by one line, asked by curl, stopped by a signal while it streams.
func TestProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(self, "-listen", "127.0.0.1:0", "-grace", "2m", pocket)
	process.Env = append(os.Environ(), "INLAY_TEST_SERVER=1")
	output, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer process.Process.Kill()
	line, err := bufio.NewReader(output).ReadString('\n')
	i := strings.Index(line, "http://")
	if err != nil || i < 0 {
		t.Fatalf("%q, %v", line, err)
	}
	base := strings.TrimSpace(line[i:])

	if curl, err := exec.LookPath("curl"); err != nil {
		t.Log("no curl: net/http alone has asked")
	} else {
		got, err := exec.Command(curl, "-sS", "-N", base+"/chat/completions", "-H", "Content-Type: application/json",
			"-d", `{`+question+`,"max_tokens":8,"stream":true}`).Output()
		if err != nil || !bytes.HasSuffix(got, []byte("data: [DONE]\n\n")) || !bytes.Contains(got, []byte(`"delta":{"content":`)) {
			t.Errorf("%v: %s", err, got)
		}
		got, err = exec.Command(curl, "-sS", "-w", "%{http_code}", base+"/embeddings", "-d", `{"input":"A fox."}`).Output()
		if err != nil || !bytes.HasSuffix(got, []byte("200")) {
			t.Errorf("%v: %s", err, got)
		}
	}

	response, err := http.Post(base+"/chat/completions", "application/json", strings.NewReader(`{`+question+`,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil || !bytes.HasSuffix(data, []byte("data: [DONE]\n\n")) {
		t.Errorf("the stream that ran was cut: %v: %s", err, data)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestFlags(t *testing.T) {
	if o, err := parse([]string{"a/b/model"}); err != nil || o.listen != "127.0.0.1:8080" || o.name != "model" {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := parse(nil); err == nil {
		t.Error("no model was taken")
	}
	if err := run(context.Background(), &options{model: "/no/such/model", listen: "127.0.0.1:0"}, nil); err == nil {
		t.Error("a model that is not there was served")
	}
}
