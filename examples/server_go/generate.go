package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"inlay.dev/go/inlay"
)

// job is a request of either form: n choices for each of the requests.
type job struct {
	common   *common
	requests []inlay.Request
	n        int
	form     form
}

// form is how answers look.
type form interface {
	id() string
	object() string
	piece() string
	first(index int) any // nil: nothing
	next(index int, text string, offset int, logprobs []inlay.TokenLogprobs) any
	last(index int, reason string) any
	whole(index int, text string, logprobs []inlay.TokenLogprobs, reason string) any
}

func random(bytes int) []byte {
	data := make([]byte, bytes)
	if _, err := rand.Read(data); err != nil {
		panic(err) // Linux has random bytes
	}
	return data
}

// choice is one generation, and the session that it has for itself.
type choice struct {
	session *inlay.Session
	stream  *inlay.Stream
}

func closeAll(choices []choice) {
	for _, c := range choices {
		c.stream.Close()
		c.session.Close()
	}
}

// submit starts every choice, or none.
func (s *server) submit(ctx context.Context, j *job) ([]choice, error) {
	seed := binary.LittleEndian.Uint64(random(8))
	if j.common.Seed != nil {
		seed = uint64(*j.common.Seed)
	}
	var choices []choice
	for _, request := range j.requests {
		for i := 0; i < j.n; i++ {
			request.Seed = seed + uint64(i) // n choices of one seed are n, not one n times
			c, err := s.submitOne(ctx, request)
			if err != nil {
				closeAll(choices)
				return nil, err
			}
			choices = append(choices, c)
		}
	}
	return choices, nil
}

func (s *server) submitOne(ctx context.Context, request inlay.Request) (choice, error) {
	session, err := s.model.NewSession()
	if err != nil {
		return choice{}, err
	}
	stream, err := session.Submit(ctx, request)
	if err == nil {
		return choice{session, stream}, nil
	}
	defer session.Close()
	if errors.Is(err, inlay.ErrResourceExhausted) {
		// To come again helps only where it fits.
		if quote, failed := session.Quote(request, false); failed != nil || !quote.Fits {
			return choice{}, refuse(400, "invalid_request_error", "context_length_exceeded", "%s", toProblem(err).Message)
		}
	}
	return choice{}, err
}

func reasonOf(finish *inlay.Finish) string {
	if finish.Reason == inlay.FinishLength {
		return "length"
	}
	return "stop"
}

// generate runs a job until it is answered, or its client is gone: then r's context ends, and with it every stream.
func (s *server) generate(w http.ResponseWriter, r *http.Request, j *job) error {
	choices, err := s.submit(r.Context(), j)
	if err != nil {
		return err
	}
	defer closeAll(choices)
	head := body{ID: j.form.id() + hex.EncodeToString(random(12)), Created: time.Now().Unix(), Model: s.name}
	if j.common.Stream {
		return s.stream(w, r, j, choices, head)
	}
	head.Object, head.Usage = j.form.object(), &usage{}
	for i, c := range choices {
		completion, err := c.stream.Collect(r.Context())
		if err != nil {
			return err
		}
		head.Choices = append(head.Choices, j.form.whole(i, completion.Text, completion.Logprobs, reasonOf(&completion.Finish)))
		head.Usage.add(&completion.Finish, i%j.n == 0)
	}
	return answer(w, head)
}

// piece is what a stream gave: an event, its end, or an error.
type piece struct {
	index int
	event inlay.Event
	end   *inlay.Finish
	err   error
}

// stream answers with server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html
func (s *server) stream(w http.ResponseWriter, r *http.Request, j *job, choices []choice, head body) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	pieces := make(chan piece)
	for i, c := range choices {
		go func(i int, stream *inlay.Stream) {
			for {
				event, err := stream.Next(ctx)
				p := piece{index: i, event: event, err: err}
				if err == io.EOF {
					p.err, p.end = nil, stream.Finish()
				}
				select {
				case pieces <- p:
				case <-ctx.Done():
				}
				if err != nil {
					return
				}
			}
		}(i, c.stream)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // for a proxy before us
	connection, _ := r.Context().Value(connectionKey{}).(net.Conn)
	write := func(data []byte) error {
		if connection != nil {
			_ = connection.SetWriteDeadline(time.Now().Add(s.limits.write))
		}
		if _, err := w.Write(append(append([]byte("data: "), data...), '\n')); err != nil {
			return err
		}
		w.(http.Flusher).Flush()
		return nil
	}
	if connection != nil {
		defer connection.SetWriteDeadline(time.Time{})
	}
	head.Object = j.form.piece()
	send := func(choice any) error {
		head.Choices = []any{choice}
		return write(encode(head))
	}
	for i := range choices {
		if first := j.form.first(i); first != nil && send(first) != nil {
			return nil
		}
	}
	var total usage
	offsets := make([]int, len(choices))
	for running := len(choices); running > 0; {
		var p piece
		select {
		case p = <-pieces:
		case <-ctx.Done():
			p.err = ctx.Err()
		}
		var next any
		switch {
		case p.err != nil:
			// The status has gone out; OpenAI's clients look for this.
			_ = write(encode(toProblem(p.err).json()))
			return nil
		case p.end != nil:
			running--
			total.add(p.end, p.index%j.n == 0)
			next = j.form.last(p.index, reasonOf(p.end))
		case p.event.Text == "" && len(p.event.Logprobs) == 0:
			continue // a part of a code point
		default:
			next = j.form.next(p.index, p.event.Text, offsets[p.index], p.event.Logprobs)
			offsets[p.index] += len([]rune(p.event.Text))
		}
		if send(next) != nil {
			return nil
		}
	}
	if j.common.StreamOptions != nil && j.common.StreamOptions.IncludeUsage {
		head.Choices, head.Usage = []any{}, &total
		if write(encode(head)) != nil {
			return nil
		}
	}
	_ = write([]byte("[DONE]\n"))
	return nil
}
