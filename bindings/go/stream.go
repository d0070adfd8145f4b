package inlay

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"inlay.dev/go/inlay/internal/capi"
)

// EventKind says which fields of an Event count.
type EventKind int32

// The kinds. What ends a request is no event here: Next then gives io.EOF or an error, and Finish has the rest.
const (
	EventTokens    EventKind = 0
	EventLogits    EventKind = 1
	EventScores    EventKind = 2
	EventEmbedding EventKind = 4
	// EventClassification has Logits and Scores of the labels.
	EventClassification EventKind = 5
)

// Event is something that a request produced.
type Event struct {
	Kind EventKind

	// EventTokens: the tokens of one or several steps, and the text that became certain: whole code points, never a part of a
	// stop string. Text can lag behind the tokens, and either may be empty. Bytes are those of the tokens as they are.
	Tokens   []int32
	Text     string
	Bytes    []byte
	Logprobs []TokenLogprobs // one for each token, where asked for

	// EventLogits: of Position. EventScores: Scores[i] is the log-probability of the prompt's token at Position+i.
	// EventClassification: both of the labels, in the order of the model's config.json.
	Position int64
	Logits   []float32
	Scores   []float32

	// EventEmbedding: as long as ModelInfo.HiddenSize, or what the last Dense module of the model's files gives.
	Embedding []float32
}

// TokenLogprob is a token and the natural logarithm of its probability by the model's own distribution.
type TokenLogprob struct {
	Token   int32
	Logprob float32
}

// TokenLogprobs is a token that was chosen, and the likeliest ones at its place.
type TokenLogprobs struct {
	TokenLogprob
	Top []TokenLogprob
}

// FinishReason says how a generation ended.
type FinishReason int32

// The reasons.
const (
	FinishStop      FinishReason = 0 // an end-of-sequence token, stop token or stop string
	FinishLength    FinishReason = 1 // MaxTokens, or the context is full
	FinishCancelled FinishReason = 2
	FinishError     FinishReason = 3
)

func (r FinishReason) String() string {
	switch r {
	case FinishStop:
		return "stop"
	case FinishLength:
		return "length"
	case FinishCancelled:
		return "cancelled"
	}
	return "error"
}

// Finish is how a generation ended, and what it took.
type Finish struct {
	Reason          FinishReason
	StopToken       int32         // the token it stopped at; -1: none
	StopString      int           // index of the stop string it stopped at; -1: none
	PromptTokens    int           // of the request's input and the log before it
	CachedTokens    int           // of these, not computed again
	GeneratedTokens int           // chosen, a stop token included
	Queue           time.Duration // from Submit to the first step
	FirstToken      time.Duration // from Submit to the first token; 0: there was none
	Total           time.Duration // from Submit to the end
}

// queue is the part of a stream that goroutines of this package hold: events on their way to whoever calls Next.
type queue struct {
	core *core
	ctx  context.Context
	id   uint64
	wake chan struct{} // has one when there is something to see
	done chan struct{} // closed at the end

	mu      sync.Mutex
	request uintptr // 0 before the library has told it, and once released
	events  []Event
	read    int // of events
	ended   bool
	closed  bool
	finish  *Finish
	err     error // after the events; nil: io.EOF
}

func newQueue(ctx context.Context, c *core, id uint64) *queue {
	return &queue{core: c, ctx: ctx, id: id, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// attach tells the request's number, and follows the context.
func (q *queue) attach(request uintptr) {
	q.mu.Lock()
	ended := q.ended
	if !ended {
		q.request = request
	}
	q.mu.Unlock()
	if ended {
		capi.Inlay_request_release(request)
		return
	}
	if q.ctx.Done() != nil {
		go func() {
			select {
			case <-q.ctx.Done():
				_ = q.cancel()
			case <-q.done:
			}
		}()
	}
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) push(event *capi.Event) {
	if event.Finish != nil {
		q.end(finishOf(event.Finish), q.finishError(event.Finish))
		return
	}
	next := Event{
		Kind:      EventKind(event.Kind),
		Tokens:    event.Tokens,
		Text:      event.Text,
		Bytes:     event.Bytes,
		Logprobs:  logprobsOf(event.Logprobs, event.TopLogprobs),
		Position:  event.Position,
		Logits:    event.Logits,
		Scores:    event.Scores,
		Embedding: event.Embedding,
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	// As in the library: a slow reader finds one event, not thousands.
	if n := len(q.events); n > 0 && next.Kind == EventTokens && q.events[n-1].Kind == EventTokens {
		last := &q.events[n-1]
		last.Tokens = append(last.Tokens, next.Tokens...)
		last.Text += next.Text
		last.Bytes = append(last.Bytes, next.Bytes...)
		last.Logprobs = append(last.Logprobs, next.Logprobs...)
		return
	}
	q.events = append(q.events, next)
	q.signal()
}

func (q *queue) end(finish *Finish, err error) {
	q.mu.Lock()
	if q.ended {
		q.mu.Unlock()
		return
	}
	q.ended, q.finish, q.err = true, finish, err
	request := q.request
	q.request = 0
	q.mu.Unlock()
	capi.Inlay_request_release(request)
	close(q.done)
	q.signal()
}

// close is end for a stream that nobody reads any more.
func (q *queue) close() {
	q.core.forget(q.id)
	q.end(nil, closed("stream"))
	q.mu.Lock()
	q.events, q.read, q.closed = nil, 0, true
	q.mu.Unlock()
}

func (q *queue) cancel() error {
	q.mu.Lock()
	request := q.request
	q.mu.Unlock()
	if request == 0 {
		return nil
	}
	err := call(func(object *uintptr) int32 { return capi.Inlay_request_cancel(request, object) })
	if code, ok := err.(*Error); ok && (code.Code == ErrInvalidHandle || code.Code == ErrClosed) {
		return nil // it has ended meanwhile
	}
	return err
}

// pop gives the next event, or io.EOF or an error at the end; false: neither yet.
func (q *queue) pop() (Event, error, bool) {
	event, err, ok := q.popDelivered()
	if !ok && q.core.host {
		q.core.drain()
		event, err, ok = q.popDelivered()
	}
	return event, err, ok
}

func (q *queue) popDelivered() (Event, error, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.signal()
		return Event{}, closed("stream"), true
	}
	if q.read < len(q.events) {
		event := q.events[q.read]
		q.events[q.read] = Event{}
		q.read++
		if q.read == len(q.events) {
			q.events, q.read = q.events[:0], 0
		}
		if len(q.events) > 0 || q.ended {
			q.signal() // for another goroutine that waits too
		}
		return event, nil, true
	}
	if !q.ended {
		return Event{}, nil, false
	}
	q.signal()
	if q.err != nil {
		return Event{}, q.err, true
	}
	return Event{}, io.EOF, true
}

func (q *queue) next(ctx context.Context) (Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return Event{}, contextError(err, "while waiting for the next event")
		}
		if event, err, ok := q.pop(); ok {
			return event, err
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}

func (q *queue) finishError(finish *capi.Finish) error {
	if finish.Status == statusOK {
		return nil
	}
	err := &Error{Code: Code(finish.Status), Message: finish.Message}
	switch err.Code {
	case ErrCancelled:
		err.cause = q.ctx.Err()
	case ErrTimeout:
		err.cause = context.DeadlineExceeded
	}
	return err
}

func finishOf(finish *capi.Finish) *Finish {
	return &Finish{
		Reason:          FinishReason(finish.Reason),
		StopToken:       finish.StopToken,
		StopString:      int(finish.StopString),
		PromptTokens:    int(finish.PromptTokens),
		CachedTokens:    int(finish.CachedTokens),
		GeneratedTokens: int(finish.GeneratedTokens),
		Queue:           duration(finish.QueueMicros),
		FirstToken:      duration(finish.FirstTokenMicros),
		Total:           duration(finish.TotalMicros),
	}
}

func logprobsOf(flat []capi.TokenLogprob, top int) []TokenLogprobs {
	if len(flat) == 0 {
		return nil
	}
	list := make([]TokenLogprobs, 0, len(flat)/(1+top))
	for ; len(flat) > top; flat = flat[1+top:] {
		entry := TokenLogprobs{TokenLogprob: TokenLogprob(flat[0])}
		for _, other := range flat[1 : 1+top] {
			entry.Top = append(entry.Top, TokenLogprob(other))
		}
		list = append(list, entry)
	}
	return list
}

// Stream is one generation on its way. Read it with Next, with Scan, from Events, or all at once with Collect.
type Stream struct {
	queue   *queue
	session *Session // a session that nobody else holds lives as long as its request
	event   Event
	err     error
}

func newStream(q *queue, session *Session) *Stream {
	s := &Stream{queue: q, session: session}
	runtime.SetFinalizer(s, func(s *Stream) { s.queue.close() })
	return s
}

// Next waits for the next event. After the last one it gives io.EOF, or the error that the generation ended with. When ctx is
// done it gives that error, and the generation goes on: the context of Submit ends it.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	defer runtime.KeepAlive(s)
	return s.queue.next(ctx)
}

// Poll is Next without waiting; false: there is nothing yet.
func (s *Stream) Poll() (Event, bool, error) {
	defer runtime.KeepAlive(s)
	event, err, ok := s.queue.pop()
	return event, ok && err == nil, err
}

// Scan waits for the next event, which Event and Text then give; false at the end, or when the context of Submit is done.
func (s *Stream) Scan() bool {
	s.event, s.err = s.Next(s.queue.ctx)
	return s.err == nil
}

// Event is the one that the last Scan found.
func (s *Stream) Event() Event { return s.event }

// Text is that of the event which the last Scan found.
func (s *Stream) Text() string { return s.event.Text }

// Err says why Scan gave false; nil when the generation ended on its own.
func (s *Stream) Err() error {
	if s.err == io.EOF {
		return nil
	}
	return s.err
}

// Events is the stream as a channel, closed at its end or when ctx is done: read it to its end, or end ctx. Ask Wait for the error
// afterwards.
func (s *Stream) Events(ctx context.Context) <-chan Event {
	events := make(chan Event)
	go func() {
		defer close(events)
		for {
			event, err := s.Next(ctx)
			if err != nil {
				return
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return
			}
		}
	}()
	return events
}

// Wait waits for the generation's end, reading nothing, and gives the error that it ended with. When ctx is done it gives that
// error. In a host-driven engine somebody else has to call Step meanwhile.
func (s *Stream) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(s)
	select {
	case <-s.queue.done:
	case <-ctx.Done():
		return contextError(ctx.Err(), "while waiting for the end")
	}
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.err
}

// Completion is a whole generation.
type Completion struct {
	Text      string
	Tokens    []int32
	Logprobs  []TokenLogprobs
	Scores    []float32 // log-probabilities of the prompt's tokens, or scores of labels, where asked for
	Embedding []float32 // where asked for
	Finish    Finish
}

// Collect reads the rest of the stream. With an error it gives what came before that.
func (s *Stream) Collect(ctx context.Context) (*Completion, error) {
	var text strings.Builder
	c := &Completion{}
	for {
		event, err := s.Next(ctx)
		if err != nil {
			c.Text = text.String()
			if finish := s.Finish(); finish != nil {
				c.Finish = *finish
			}
			if err == io.EOF {
				err = nil
			}
			return c, err
		}
		text.WriteString(event.Text)
		c.Tokens = append(c.Tokens, event.Tokens...)
		c.Logprobs = append(c.Logprobs, event.Logprobs...)
		c.Scores = append(c.Scores, event.Scores...)
		if event.Kind == EventEmbedding {
			c.Embedding = event.Embedding
		}
	}
}

// Finish is how the generation ended; nil before that, and where Close came first.
func (s *Stream) Finish() *Finish {
	defer runtime.KeepAlive(s)
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return s.queue.finish
}

// Cancel ends the generation within a step; ErrCancelled follows in the stream. No effect once it has ended.
func (s *Stream) Cancel() error {
	defer runtime.KeepAlive(s)
	return s.queue.cancel()
}

// Close cancels the generation if it runs, and drops what was not read; reading then gives ErrClosed. It returns nil.
func (s *Stream) Close() error {
	runtime.SetFinalizer(s, nil)
	s.queue.close()
	return nil
}
