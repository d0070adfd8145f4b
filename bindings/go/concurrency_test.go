package inlay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"sync"
	"testing"
	"time"

	"inlay.dev/go/inlay"
)

func TestSessionsInParallel(t *testing.T) {
	const sessions = 64
	engine, model := open(t, pocket)
	request := func(i int) inlay.Request {
		return inlay.Request{Text: fmt.Sprintf("Once upon a time, there were %d", i), MaxTokens: 16, Temperature: 0.8, Seed: uint64(i)}
	}
	var alone [sessions]string
	for i := range alone {
		alone[i] = generate(t, newSession(t, model), request(i)).Text
	}
	var wg sync.WaitGroup
	for i := 0; i < sessions; i++ {
		wg.Add(1)
		session, stream := newSession(t, model), (*inlay.Stream)(nil)
		go func(i int) {
			defer wg.Done()
			var err error
			if stream, err = session.Submit(background(t), request(i)); err != nil {
				t.Error(err)
				return
			}
			text := ""
			for stream.Scan() {
				text += stream.Text()
			}
			if stream.Err() != nil || text != alone[i] {
				t.Errorf("session %d: %v, %q beside others, %q alone", i, stream.Err(), text, alone[i])
			}
		}(i)
	}
	wg.Wait()
	s := stats(t, engine)
	if s.FinishedRequests != 2*sessions || s.StepTokens.Max < 2 {
		t.Errorf("%d requests finished; the largest step had %d tokens", s.FinishedRequests, s.StepTokens.Max)
	}
}

func TestCancel(t *testing.T) {
	engine, model := open(t, pocket)
	session := newSession(t, model)
	long := inlay.Request{Text: "Once", MaxTokens: 3000, IgnoreEOS: true}

	t.Run("Cancel", func(t *testing.T) {
		stream := submit(t, session, long)
		if !stream.Scan() {
			t.Fatal(stream.Err())
		}
		if err := stream.Cancel(); err != nil {
			t.Fatal(err)
		}
		err := stream.Wait(background(t))
		if !errors.Is(err, inlay.ErrCancelled) || errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
		if err := drainAll(background(t), stream); !errors.Is(err, inlay.ErrCancelled) {
			t.Errorf("read to %v", err)
		}
		if finish := stream.Finish(); finish == nil || finish.Reason != inlay.FinishCancelled {
			t.Errorf("finish %+v", finish)
		}
		if err := stream.Cancel(); err != nil {
			t.Errorf("again: %v", err)
		}
	})
	t.Run("within a step", func(t *testing.T) {
		host := newEngine(t, &inlay.EngineOptions{HostDriven: true})
		model := load(t, host, pocket)
		for _, steps := range []int{0, 1, 5} { // not begun, read, generating
			ctx, cancel := context.WithCancel(context.Background())
			stream, err := newSession(t, model).Submit(ctx, long)
			if err != nil {
				t.Fatal(err)
			}
			for ; steps > 0; steps-- {
				if _, err := host.Step(0); err != nil {
					t.Fatal(err)
				}
			}
			if err := stream.Cancel(); err != nil {
				t.Fatal(err)
			}
			if _, err := host.Step(0); err != nil {
				t.Fatal(err)
			}
			if finish := stream.Finish(); finish == nil || finish.Reason != inlay.FinishCancelled {
				t.Errorf("a step later: %+v", finish)
			}
			cancel()
		}
	})
	t.Run("context of Submit", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := session.Submit(ctx, long)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if !stream.Scan() {
			t.Fatal(stream.Err())
		}
		cancel()
		begin := time.Now()
		if stream.Scan() || !errors.Is(stream.Err(), context.Canceled) || !errors.Is(stream.Err(), inlay.ErrCancelled) {
			t.Errorf("Scan ends with %v", stream.Err())
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("Scan took %v", took)
		}
		if err := stream.Wait(background(t)); !errors.Is(err, context.Canceled) || !errors.Is(err, inlay.ErrCancelled) {
			t.Errorf("the generation ends with %v", err)
		}
	})
	t.Run("deadline of Submit", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := session.Generate(ctx, long)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, inlay.ErrTimeout) {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
	t.Run("context of Next", func(t *testing.T) {
		host := newEngine(t, &inlay.EngineOptions{HostDriven: true})
		stream := submit(t, newSession(t, load(t, host, tiny)), inlay.Request{Tokens: prompt(1, 4), MaxTokens: 4})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if _, err := stream.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody steps, and Next gives %v", err)
		}
		if err := stream.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody steps, and Wait gives %v", err)
		}
		for stream.Finish() == nil { // the generation was not touched
			if _, err := host.Step(0); err != nil {
				t.Fatal(err)
			}
		}
		if err := drainAll(background(t), stream); err != nil {
			t.Error(err)
		}
	})
	t.Run("before it begins", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := session.Submit(ctx, long); !errors.Is(err, context.Canceled) {
			t.Errorf("Submit gives %v", err)
		}
		if _, err := engine.LoadModel(ctx, pocket, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("LoadModel gives %v", err)
		}
	})
	// The session is free again after all that.
	eventually(t, "the session is free", func() bool {
		info, err := session.Info()
		return err == nil && !info.Busy
	})
	if got := generate(t, session, inlay.Request{Text: "Once", Replace: true, MaxTokens: 4}); len(got.Tokens) != 4 {
		t.Errorf("%+v", got)
	}
}

// Requests that are cancelled in every way, at any moment, from many goroutines; then the engine works as before.
func TestCancelStorm(t *testing.T) {
	engine, model := open(t, tiny)
	want := generate(t, newSession(t, model), inlay.Request{Tokens: prompt(3, 20), MaxTokens: 20}).Tokens
	var wg sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		wg.Add(1)
		go func(seed int64) {
			defer wg.Done()
			random := rand.New(rand.NewSource(seed))
			session, err := model.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer session.Close()
			for i := 0; i < 40; i++ {
				ctx, cancel := context.WithCancel(context.Background())
				stream, err := session.Submit(ctx, inlay.Request{
					Tokens: prompt(random.Intn(500), 1+random.Intn(60)), Replace: true, MaxTokens: 200, IgnoreEOS: true})
				if errors.Is(err, inlay.ErrInvalidState) { // the one before is not quite gone
					cancel()
					time.Sleep(time.Millisecond)
					continue
				} else if err != nil {
					t.Error(err)
					cancel()
					return
				}
				for reads := random.Intn(4); reads > 0 && stream.Scan(); reads-- {
				}
				time.Sleep(time.Duration(random.Intn(500)) * time.Microsecond)
				switch random.Intn(4) {
				case 0:
					_ = stream.Cancel()
				case 1:
					cancel()
				case 2:
					stream.Close()
				case 3:
					go stream.Cancel()
					go cancel()
					stream.Close()
				}
				if err := stream.Wait(background(t)); err != nil && !errors.Is(err, inlay.ErrCancelled) && !errors.Is(err, inlay.ErrClosed) {
					t.Error(err)
				}
				stream.Close()
				cancel()
			}
		}(int64(worker))
	}
	wg.Wait()
	eventually(t, "nothing runs", func() bool {
		s := stats(t, engine)
		return s.RunningRequests == 0 && s.WaitingRequests == 0
	})
	if s := stats(t, engine); s.SubmittedRequests != s.FinishedRequests+s.CancelledRequests || s.CancelledRequests == 0 {
		t.Errorf("%d submitted, %d finished, %d cancelled", s.SubmittedRequests, s.FinishedRequests, s.CancelledRequests)
	}
	if got := generate(t, newSession(t, model), inlay.Request{Tokens: prompt(3, 20), MaxTokens: 20}).Tokens; !equal(got, want) {
		t.Errorf("%v, before the storm %v", got, want)
	}
}

// Several goroutines read one stream: each event goes to one of them, and all see the end.
func TestSeveralReaders(t *testing.T) {
	_, model := open(t, tiny)
	stream := submit(t, newSession(t, model), inlay.Request{Tokens: prompt(1, 4), MaxTokens: 200, IgnoreEOS: true})
	var mu sync.Mutex
	var wg sync.WaitGroup
	tokens := 0
	for i := 0; i < 4; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				event, err := stream.Next(background(t))
				if err != nil {
					if err != io.EOF {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				tokens += len(event.Tokens)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	if tokens != 200 {
		t.Errorf("%d of 200 tokens", tokens)
	}
}

func TestHostDriven(t *testing.T) {
	_, reference := open(t, tiny)
	want := generate(t, newSession(t, reference), inlay.Request{Tokens: prompt(5, 30), MaxTokens: 12}).Tokens

	engine := newEngine(t, &inlay.EngineOptions{HostDriven: true})
	model := load(t, engine, tiny)
	stream := submit(t, newSession(t, model), inlay.Request{Tokens: prompt(5, 30), MaxTokens: 12})
	if _, ok, err := stream.Poll(); ok || err != nil {
		t.Fatalf("before any step: %v, %v", ok, err)
	}
	info, err := engine.Step(0)
	if err != nil || info.Requests != 1 || info.PrefillTokens != 30 || info.SampledTokens != 1 || !info.MoreWork {
		t.Fatalf("%+v, %v", info, err)
	}
	var got []int32
	for {
		event, ok, err := stream.Poll()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if _, err := engine.Step(2 * time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, event.Tokens...)
	}
	if !equal(got, want) {
		t.Errorf("%v, with the engine's thread %v", got, want)
	}
	if _, err := engine.Step(-1); !errors.Is(err, inlay.ErrInvalidArgument) {
		t.Errorf("a negative budget: %v", err)
	}

	// One goroutine steps, another reads.
	stream = submit(t, newSession(t, model), inlay.Request{Tokens: prompt(9, 30), MaxTokens: 50, IgnoreEOS: true})
	stop := make(chan struct{})
	stepper := make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stepper <- nil
				return
			default:
			}
			if _, err := engine.Step(0); err != nil {
				stepper <- err
				return
			}
		}
	}()
	if got, err := stream.Collect(background(t)); err != nil || len(got.Tokens) != 50 {
		t.Errorf("%+v, %v", got, err)
	}
	close(stop)
	if err := <-stepper; err != nil {
		t.Error(err)
	}

	thread, _ := open(t, tiny)
	if _, err := thread.Step(0); !errors.Is(err, inlay.ErrInvalidState) {
		t.Errorf("Step beside the engine's thread: %v", err)
	}
}
