// The command server answers OpenAI's HTTP API from a model on this machine. It is an example over Inlay's Go binding, and small
// enough to be read: main.go starts and stops, server.go routes and refuses, chat.go and completions.go are the two forms of a
// generation, generate.go runs it, embeddings.go makes vectors, wire.go is what goes over the wire.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"inlay.dev/go/inlay"
)

type options struct {
	model, name, listen, apiKey string
	threads, maxContext         int
	memoryBudget                uint64
	limits                      limits
	grace                       time.Duration
}

func parse(arguments []string) (*options, error) {
	o := &options{apiKey: os.Getenv("INLAY_API_KEY")}
	flags := flag.NewFlagSet("inlay_server", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: inlay_server [OPTIONS] MODEL\n\nMODEL is a Hugging Face directory or a .gguf file. Options:")
		flags.PrintDefaults()
		fmt.Fprintln(flags.Output(), "\nINLAY_API_KEY in the environment: requests must carry it as a bearer token.")
	}
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address and port; port 0 takes a free one")
	flags.StringVar(&o.name, "name", "", "the model's name in the API (default: the last part of its path)")
	flags.IntVar(&o.threads, "threads", 0, "CPU threads (default: one per core)")
	flags.IntVar(&o.maxContext, "max-context", 0, "cap on the tokens of a conversation (default: the model's own)")
	flags.Uint64Var(&o.memoryBudget, "memory-budget", 0, "bytes of weights, KV and scratch together (default: no limit)")
	flags.IntVar(&o.limits.concurrent, "max-concurrent", 256, "requests at once; more are answered by 429")
	flags.IntVar(&o.limits.tokens, "max-tokens", 4096, "tokens that a request may generate for each choice")
	flags.IntVar(&o.limits.choices, "max-choices", 8, "choices of one request")
	flags.Int64Var(&o.limits.body, "max-body", 4<<20, "bytes of a request's body")
	flags.DurationVar(&o.limits.duration, "max-duration", 10*time.Minute, "of one request")
	flags.DurationVar(&o.limits.write, "max-write", 30*time.Second, "that a client may take to read a piece")
	flags.DurationVar(&o.grace, "grace", 20*time.Second, "that running requests have when the server stops")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() != 1 {
		return nil, fmt.Errorf("one MODEL is wanted, %d given; -h tells more", flags.NArg())
	}
	o.model = flags.Arg(0)
	if o.name == "" {
		o.name = filepath.Base(o.model)
	}
	return o, nil
}

func main() {
	log.SetFlags(log.Ltime)
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		log.Print(err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, func(address string) { log.Printf("%s is at http://%s/v1", o.name, address) }); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

// run serves until ctx is done; ready is called with the address when it can.
func run(ctx context.Context, o *options, ready func(address string)) error {
	engine, err := inlay.NewEngine(&inlay.EngineOptions{
		Threads:      o.threads,
		MemoryBudget: o.memoryBudget,
		MaxQueue:     o.limits.concurrent * (o.limits.choices + inlay.EmbedAtOnce),
		Log:          func(_ inlay.LogLevel, message string) { log.Print(message) },
	})
	if err != nil {
		return err
	}
	defer engine.Close()
	model, err := engine.LoadModel(ctx, o.model, &inlay.ModelOptions{MaxContext: o.maxContext})
	if err != nil {
		return err
	}
	defer model.Close()
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	s, err := newServer(engine, model, o, listener.Addr())
	if err != nil {
		return err
	}
	// Cancelled when the grace is over: every request's context is a child of it.
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	web := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return work },
		ConnContext:       withConnection,
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	ready(listener.Addr().String())
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	grace, done := context.WithTimeout(context.Background(), o.grace)
	defer done()
	if web.Shutdown(grace) != nil {
		cancel()
		last, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		if web.Shutdown(last) != nil {
			web.Close()
		}
	}
	return nil
}
