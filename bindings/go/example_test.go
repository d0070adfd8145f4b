package inlay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"inlay.dev/go/inlay"
)

func Example() {
	ctx := context.Background()
	engine, err := inlay.NewEngine(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	model, err := engine.LoadModel(ctx, "../../examples/models/pocket-7m", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	stream, err := session.Submit(ctx, inlay.Request{Text: "Once upon a time,", MaxTokens: 10})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	for stream.Scan() {
		fmt.Print(stream.Text())
	}
	if stream.Err() != nil {
		log.Fatal(stream.Err())
	}
	// Output: there lived a kind eel called Copper. Copper was
}

func exampleModel() (*inlay.Engine, *inlay.Model) {
	engine, err := inlay.NewEngine(nil)
	if err != nil {
		log.Fatal(err)
	}
	model, err := engine.LoadModel(context.Background(), "../../examples/models/pocket-7m", nil)
	if err != nil {
		log.Fatal(err)
	}
	return engine, model
}

func ExampleSession_Generate_chat() {
	engine, model := exampleModel()
	defer engine.Close()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	chat := inlay.Conversation(inlay.User("What is 17 + 25?"))
	answer, err := session.Generate(context.Background(), inlay.Request{Chat: chat, MaxTokens: 20})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Finish.Reason)
	// The whole conversation goes in each time; what is the same as before is not computed again.
	chat.Messages = append(chat.Messages, inlay.Assistant(answer.Text), inlay.User("Thank you."))
	answer, err = session.Generate(context.Background(), inlay.Request{Chat: chat, MaxTokens: 20})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Finish.CachedTokens > 10)
	// Output:
	// stop
	// true
}

func ExampleStream_Events() {
	engine, model := exampleModel()
	defer engine.Close()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := session.Submit(ctx, inlay.Request{Text: "Once upon a time,", MaxTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close()
	tokens := 0
	for event := range stream.Events(ctx) {
		tokens += len(event.Tokens)
	}
	fmt.Println(tokens, stream.Wait(ctx))
	// Output: 4 <nil>
}

func ExampleEngine_Step() {
	engine, err := inlay.NewEngine(&inlay.EngineOptions{HostDriven: true})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	model, err := engine.LoadModel(context.Background(), "../../examples/models/pocket-7m", nil)
	if err != nil {
		log.Fatal(err)
	}
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	stream, err := session.Submit(context.Background(), inlay.Request{Text: "Once upon a time,", MaxTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	for frame := 0; ; frame++ {
		if _, err := engine.Step(4 * time.Millisecond); err != nil { // the frame's budget
			log.Fatal(err)
		}
		event, ok, err := stream.Poll()
		if err == io.EOF {
			break
		}
		if ok {
			fmt.Print(event.Text)
		}
	}
	// Output: there lived a kind
}

func ExampleError() {
	engine, err := inlay.NewEngine(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	_, err = engine.LoadModel(context.Background(), "/no/such/model", nil)
	var failure *inlay.Error
	fmt.Println(errors.Is(err, inlay.ErrNotFound), errors.As(err, &failure), failure.Name())
	// Output: true true INLAY_NOT_FOUND
}

func ExampleSession_Fork() {
	engine, model := exampleModel()
	defer engine.Close()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	ctx := context.Background()
	if _, err := session.Generate(ctx, inlay.Request{Text: "Once upon a time,", MaxTokens: 6}); err != nil {
		log.Fatal(err)
	}
	other, err := session.Fork()
	if err != nil {
		log.Fatal(err)
	}
	defer other.Close()
	one, err := session.Generate(ctx, inlay.Request{MaxTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	two, err := other.Generate(ctx, inlay.Request{MaxTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(one.Text == two.Text)
	// Output: true
}

func ExampleModel_NewPrefix() {
	engine, model := exampleModel()
	defer engine.Close()
	system := inlay.Conversation(inlay.System("You are a helpful assistant."))
	prefix, err := model.NewPrefix("assistant", inlay.PrefixOptions{Chat: system})
	if err != nil {
		log.Fatal(err)
	}
	defer prefix.Close()
	info, err := prefix.Info()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Pinned, info.Tokens > 5)
	// Output: true true
}

func ExampleSession_Snapshot() {
	engine, model := exampleModel()
	defer engine.Close()
	ctx := context.Background()
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	if _, err := session.Generate(ctx, inlay.Request{Text: "Once upon a time,", MaxTokens: 6}); err != nil {
		log.Fatal(err)
	}
	bytes, err := session.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	session.Close()
	session, info, err := model.RestoreSnapshot(bytes)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	answer, err := session.Generate(ctx, inlay.Request{MaxTokens: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d tokens; %q\n", info.Tokens, answer.Text)
	// Output: 12 tokens; " Copper. Copper was"
}

func ExampleModel_Embed() {
	engine, model := exampleModel()
	defer engine.Close()
	options := &inlay.EmbedOptions{Embedding: inlay.EmbeddingMean, Normalise: true}
	vectors, err := model.Embed(context.Background(), []string{"A fox.", "A lantern.", "A fox."}, options)
	if err != nil {
		log.Fatal(err)
	}
	similarity := func(a, b []float32) (sum float32) {
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	fmt.Printf("%.3f %v\n", similarity(vectors[0], vectors[2]), similarity(vectors[0], vectors[1]) < 0.99)
	// Output: 1.000 true
}
