package inlay_test

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"inlay.dev/go/inlay"
	"inlay.dev/go/inlay/internal/cref"
)

func TestGenerateEqualsC(t *testing.T) {
	_, model := open(t, pocket)
	for _, text := range []string{"Once upon a time,", "Höher als der Mond 🌙,", "17 + 25 ="} {
		want, err := cref.Generate(pocket, text, false, 48)
		if err != nil {
			t.Fatal(err)
		}
		got := generate(t, newSession(t, model), inlay.Request{Text: text, MaxTokens: 48})
		if !equal(got.Tokens, want.Tokens) || got.Text != want.Text {
			t.Errorf("%q gives\n%q %v, and in C\n%q %v", text, got.Text, got.Tokens, want.Text, want.Tokens)
		}
	}
}

func TestChatEqualsC(t *testing.T) {
	_, model := open(t, pocket)
	const question = "Tell a story about a fox and a lantern."
	want, err := cref.Generate(pocket, `{"messages":[{"role":"user","content":"`+question+`"}]}`, true, 200)
	if err != nil {
		t.Fatal(err)
	}
	session := newSession(t, model)
	chat := inlay.Conversation(inlay.User(question))
	got := generate(t, session, inlay.Request{Chat: chat, MaxTokens: 200})
	if !equal(got.Tokens, want.Tokens) || got.Text != want.Text {
		t.Errorf("gives\n%q, and in C\n%q", got.Text, want.Text)
	}
	if got.Finish.Reason != inlay.FinishStop {
		t.Errorf("finished by %v", got.Finish.Reason)
	}
	// The next turn finds what was computed for this one.
	chat.Messages = append(chat.Messages, inlay.Assistant(got.Text), inlay.User("And then?"))
	next := generate(t, session, inlay.Request{Chat: chat, MaxTokens: 8})
	if next.Finish.CachedTokens < 100 {
		t.Errorf("only %d of %d tokens were cached", next.Finish.CachedTokens, next.Finish.PromptTokens)
	}
}

func TestStreamedPiecesJoinToTheWhole(t *testing.T) {
	_, model := open(t, pocket)
	request := inlay.Request{Text: "Once upon a time,", MaxTokens: 64}
	whole := generate(t, newSession(t, model), request)
	if len(whole.Tokens) != 64 {
		t.Fatalf("%d tokens", len(whole.Tokens))
	}

	readers := map[string]func(*inlay.Stream, func(inlay.Event)) error{
		"Next": func(s *inlay.Stream, see func(inlay.Event)) error {
			for {
				event, err := s.Next(background(t))
				if err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
				see(event)
			}
		},
		"Scan": func(s *inlay.Stream, see func(inlay.Event)) error {
			for s.Scan() {
				if s.Text() != s.Event().Text {
					t.Error("Text is not the event's")
				}
				see(s.Event())
			}
			return s.Err()
		},
		"Events": func(s *inlay.Stream, see func(inlay.Event)) error {
			for event := range s.Events(background(t)) {
				see(event)
			}
			return s.Wait(background(t))
		},
		"Poll": func(s *inlay.Stream, see func(inlay.Event)) error {
			for {
				event, ok, err := s.Poll()
				if err == io.EOF {
					return nil
				} else if err != nil {
					return err
				} else if ok {
					see(event)
				} else {
					_ = s.Wait(background(t)) // and everything is there at once
				}
			}
		},
	}
	for name, read := range readers {
		stream := submit(t, newSession(t, model), request)
		var text strings.Builder
		var tokens []int32
		var bytes []byte
		pieces := 0
		err := read(stream, func(event inlay.Event) {
			if !utf8.ValidString(event.Text) {
				t.Errorf("%s: %q is no UTF-8", name, event.Text)
			}
			text.WriteString(event.Text)
			tokens = append(tokens, event.Tokens...)
			bytes = append(bytes, event.Bytes...)
			pieces++
		})
		if err != nil || text.String() != whole.Text || !equal(tokens, whole.Tokens) || string(bytes) != whole.Text {
			t.Errorf("%s: %v, %q is not %q", name, err, text.String(), whole.Text)
		}
		if name == "Poll" && pieces > 2 {
			t.Errorf("a slow reader found %d events", pieces)
		}
		if finish := stream.Finish(); finish == nil || finish.Reason != inlay.FinishLength || finish.GeneratedTokens != 64 ||
			finish.FirstToken <= 0 || finish.Total < finish.FirstToken {
			t.Errorf("%s: finish is %+v", name, finish)
		}
		if _, err := stream.Next(background(t)); err != io.EOF {
			t.Errorf("%s: after the end comes %v", name, err)
		}
	}
}

func TestStops(t *testing.T) {
	_, model := open(t, pocket)
	whole := generate(t, newSession(t, model), inlay.Request{Text: "Once upon a time,", MaxTokens: 64})
	i := strings.Index(whole.Text, " friend")
	if i < 0 {
		t.Fatalf("the story is another: %q", whole.Text)
	}
	got := generate(t, newSession(t, model), inlay.Request{
		Text: "Once upon a time,", MaxTokens: 64, StopStrings: []string{"never", " friend"}})
	if got.Text != whole.Text[:i] || got.Finish.Reason != inlay.FinishStop || got.Finish.StopString != 1 {
		t.Errorf("%q, %+v", got.Text, got.Finish)
	}
	got = generate(t, newSession(t, model), inlay.Request{
		Text: "Once upon a time,", MaxTokens: 64, StopTokens: []int32{whole.Tokens[5]}})
	if got.Finish.StopToken != whole.Tokens[5] || got.Finish.Reason != inlay.FinishStop {
		t.Errorf("%+v", got.Finish)
	}
	banned := whole.Tokens[0]
	got = generate(t, newSession(t, model), inlay.Request{
		Text: "Once upon a time,", MaxTokens: 1, LogitBias: map[int32]float32{banned: float32(math.Inf(-1))}})
	if got.Tokens[0] == banned {
		t.Error("a forbidden token was chosen")
	}
	got = generate(t, newSession(t, model), inlay.Request{Text: "Once upon a time,", PromptOnly: true})
	if len(got.Tokens) != 0 || got.Finish.PromptTokens == 0 {
		t.Errorf("PromptOnly: %+v", got)
	}
}

func TestSeeds(t *testing.T) {
	_, model := open(t, pocket)
	draw := func(seed uint64) string {
		return generate(t, newSession(t, model), inlay.Request{
			Text: "Once", MaxTokens: 24, Temperature: 1.2, TopK: 50, TopP: 0.95, MinP: 0.01, Seed: seed}).Text
	}
	if draw(7) != draw(7) {
		t.Error("one seed gave two texts")
	}
	if draw(7) == draw(8) {
		t.Error("two seeds gave one text")
	}
}

func TestLogprobsLogitsAndScores(t *testing.T) {
	_, model := open(t, pocket)
	info, err := model.Info()
	if err != nil {
		t.Fatal(err)
	}
	stream := submit(t, newSession(t, model), inlay.Request{
		Text: "Once upon a time,", MaxTokens: 5, TopLogprobs: 3, Logits: inlay.LogitsGenerated, ScorePrompt: true})
	var logprobs []inlay.TokenLogprobs
	var tokens []int32
	var logits [][]float32
	var scores []float32
	for stream.Scan() {
		switch event := stream.Event(); event.Kind {
		case inlay.EventTokens:
			logprobs = append(logprobs, event.Logprobs...)
			tokens = append(tokens, event.Tokens...)
		case inlay.EventLogits:
			logits = append(logits, event.Logits)
		case inlay.EventScores:
			scores = append(scores, event.Scores...)
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	if len(tokens) != 5 || len(logprobs) != 5 || len(logits) != 5 || len(scores) != stream.Finish().PromptTokens-1 {
		t.Fatalf("%d tokens, %d logprobs, %d logits, %d scores of %d", len(tokens), len(logprobs), len(logits), len(scores),
			stream.Finish().PromptTokens)
	}
	for i, entry := range logprobs {
		if len(logits[i]) != info.VocabSize {
			t.Fatalf("%d logits, the vocabulary is %d", len(logits[i]), info.VocabSize)
		}
		sum, best := 0.0, 0
		for id, logit := range logits[i] {
			sum += math.Exp(float64(logit))
			if logit > logits[i][best] {
				best = id
			}
		}
		want := float64(logits[i][best]) - math.Log(sum)
		// A float32 softmax over some thousand terms.
		if int(tokens[i]) != best || entry.Token != tokens[i] || math.Abs(float64(entry.Logprob)-want) > 1e-4 {
			t.Errorf("token %d: %d, logprob of %d is %v; the logits say %d, %v", i, tokens[i], entry.Token, entry.Logprob, best, want)
		}
		if len(entry.Top) != 3 || entry.Top[0].Token != tokens[i] || entry.Top[0].Logprob < entry.Top[1].Logprob {
			t.Errorf("token %d: the likeliest are %v", i, entry.Top)
		}
	}
	for _, score := range scores {
		if score > 0 || math.IsNaN(float64(score)) {
			t.Errorf("scores %v", scores)
		}
	}
	only := generate(t, newSession(t, model), inlay.Request{Text: "Once", MaxTokens: 2, Logprobs: true})
	if len(only.Logprobs) != 2 || len(only.Logprobs[0].Top) != 0 {
		t.Errorf("Logprobs alone: %v", only.Logprobs)
	}
	stream = submit(t, newSession(t, model), inlay.Request{
		Text: "Once upon a time,", PromptOnly: true, Logits: inlay.LogitsPositions, LogitsPositions: []int64{1, 3}})
	var positions []int64
	for stream.Scan() {
		positions = append(positions, stream.Event().Position)
	}
	if stream.Err() != nil || !equal(positions, []int64{1, 3}) {
		t.Errorf("logits of positions %v, %v", positions, stream.Err())
	}
}

// What is outside the basic plane goes in and comes out whole.
func TestTextBeyondTheBasicPlane(t *testing.T) {
	_, model := open(t, pocket)
	for _, text := range []string{"😀 𝄞 🇺🇳 👩‍👩‍👧‍👦", "naïve Ω≈ç√ 漢字 𠜎", "a\x00b", ""} {
		tokens, err := model.Tokenize(text, inlay.ParseSpecial)
		if err != nil {
			t.Fatal(err)
		}
		back, err := model.Detokenize(tokens, 0)
		if err != nil || back != text {
			t.Errorf("%q came back as %q, %v", text, back, err)
		}
	}
	rendered, err := model.RenderChat(inlay.Conversation(inlay.User("<&> 😀 \u2028")))
	if err != nil || !strings.Contains(rendered, "<&> 😀 \u2028") {
		t.Errorf("%q, %v", rendered, err)
	}
	if broken, err := model.Tokenize("a\xf0\x9f", 0); err != nil || len(broken) == 0 {
		t.Errorf("text cut in a code point: %v, %v", broken, err)
	}

	// Make the model say the four bytes of one code point, each a token: the bias orders them, the penalty takes what was said.
	bytes, err := model.Tokenize("😀", 0)
	if err != nil || len(bytes) != 4 {
		t.Fatalf("%v, %v", bytes, err)
	}
	bias := map[int32]float32{}
	for i, token := range bytes {
		bias[token] = float32(400 - 100*i)
	}
	stream := submit(t, newSession(t, model), inlay.Request{
		Text: "🦊 says", MaxTokens: 4, LogitBias: bias, PresencePenalty: 1000})
	var text string
	for stream.Scan() {
		if piece := stream.Text(); piece != "" && piece != "😀" {
			t.Errorf("a piece is %q", piece)
		}
		text += stream.Text()
	}
	if text != "😀" || stream.Err() != nil {
		t.Errorf("%q, %v", text, stream.Err())
	}
	// And as a stop string, which matches across tokens.
	stopped := generate(t, newSession(t, model), inlay.Request{
		Text: "🦊 says", MaxTokens: 4, LogitBias: bias, PresencePenalty: 1000, StopStrings: []string{"😀"}})
	if stopped.Text != "" || stopped.Finish.StopString != 0 {
		t.Errorf("%q, %+v", stopped.Text, stopped.Finish)
	}
}

func TestTemplates(t *testing.T) {
	chat := &inlay.Chat{
		Messages:  []inlay.Message{{Role: "user", Content: "hi", Fields: map[string]any{"name": "Zoë"}}},
		Tools:     []any{json.RawMessage(`{"z":1,"a":2}`)},
		Variables: map[string]any{"mood": "good"},
	}
	got, err := inlay.RenderTemplate(`{{ messages[0].role }}:{{ messages[0].name }}:{{ mood }}:{{ tools[0] | tojson }}:{{ add_generation_prompt }}`, chat)
	if want := `user:Zoë:good:{"z": 1, "a": 2}:True`; err != nil || got != want {
		t.Errorf("%q is not %q, %v", got, want, err)
	}
	begun := inlay.Conversation(inlay.User("hi"), inlay.Assistant("Well,"))
	begun.ContinueFinalMessage = "content"
	got, err = inlay.RenderTemplate(`{% for m in messages %}<{{ m.content }}>{% endfor %}{{ add_generation_prompt }}`, begun)
	if want := `<hi><Well,`; err != nil || got != want {
		t.Errorf("%q is not %q, %v", got, want, err)
	}
	chat.Variables["bad"] = func() {}
	if _, err := inlay.RenderTemplate("", chat); err == nil {
		t.Error("a function went through as JSON")
	}
}

func TestModelDefaults(t *testing.T) {
	_, model := open(t, pocket)
	request, err := model.RequestDefaults()
	if err != nil || request.Temperature != 0 || request.MaxTokens != 512 {
		t.Errorf("%+v, %v", request, err) // as its generation_config.json says
	}
	request.Text, request.MaxTokens = "Once", 2
	if got, err := newSession(t, model).Generate(context.Background(), request); err != nil || len(got.Tokens) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}
