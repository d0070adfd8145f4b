package inlay

import (
	"context"
	"runtime"
	"time"
	"unicode/utf8"

	"inlay.dev/go/inlay/internal/capi"
)

// Session is a token log and its KV cache. Requests make it longer, one at a time.
type Session struct {
	handle handle
	model  *Model
}

func newSession(model *Model, number uintptr) *Session {
	s := &Session{model: model}
	s.handle.set("session", number)
	runtime.SetFinalizer(s, func(s *Session) { capi.Inlay_session_release(s.handle.take()) })
	return s
}

// Close cancels the session's request, if one runs, and forgets the session. It returns nil, also when it was closed before.
func (s *Session) Close() error {
	runtime.SetFinalizer(s, nil)
	capi.Inlay_session_release(s.handle.take())
	return nil
}

// Submit starts a generation, after which the session is busy until its end; Close the stream. When ctx is done the generation
// is cancelled, and its deadline is one to the scheduler too. ErrInvalidState in a busy session, ErrResourceExhausted when the
// request could never fit the KV cache or the queue is full; then the session is as it was.
func (s *Session) Submit(ctx context.Context, request Request) (*Stream, error) {
	defer runtime.KeepAlive(s)
	if err := ctx.Err(); err != nil {
		return nil, contextError(err, "before the request was submitted")
	}
	number, err := s.handle.get()
	if err != nil {
		return nil, err
	}
	c, err := newCRequest(ctx, &request)
	if err != nil {
		return nil, err
	}
	defer c.free()
	core := s.model.engine.core
	q, err := core.open(ctx)
	if err != nil {
		return nil, err
	}
	c.options.SetUser_data(uintptr(q.id))
	var submitted, object uintptr
	if err := check(capi.Inlay_session_submit(number, c.options, &submitted, &object), &object); err != nil {
		core.forget(q.id)
		return nil, err
	}
	q.attach(submitted)
	return newStream(q, s), nil
}

// Generate is Submit and Collect.
func (s *Session) Generate(ctx context.Context, request Request) (*Completion, error) {
	stream, err := s.Submit(ctx, request)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return stream.Collect(ctx)
}

// Quote is what a request would need if it were submitted now.
type Quote struct {
	Fits         bool // its KV fits the cache if nothing else were there
	FitsNow      bool // also beside what runs now
	Reserved     bool // blocks for all of it were set aside
	PromptTokens int  // of the input and the log before it
	CachedTokens int  // of these, not to be computed again
	KVBytes      uint64
	NewKVBytes   uint64        // of these, not shared with what is cached
	FirstToken   time.Duration // estimate, behind what is queued now
}

// Quote tells what Submit would need. With reserve, blocks for all of the request are set aside for the session until its next
// request begins, its next quote, its Close, or a smaller memory budget.
func (s *Session) Quote(request Request, reserve bool) (Quote, error) {
	defer runtime.KeepAlive(s)
	number, err := s.handle.get()
	if err != nil {
		return Quote{}, err
	}
	c, err := newCRequest(context.Background(), &request)
	if err != nil {
		return Quote{}, err
	}
	defer c.free()
	quote := capi.NewInlay_quote()
	defer capi.DeleteInlay_quote(quote)
	capi.Inlay_quote_init(quote)
	if err := call(func(object *uintptr) int32 {
		return capi.Inlay_request_quote(number, c.options, flag(reserve), quote, object)
	}); err != nil {
		return Quote{}, err
	}
	return Quote{
		Fits:         quote.GetFits() != 0,
		FitsNow:      quote.GetFits_now() != 0,
		Reserved:     quote.GetReserved() != 0,
		PromptTokens: int(quote.GetPrompt_tokens()),
		CachedTokens: int(quote.GetCached_tokens()),
		KVBytes:      quote.GetKv_bytes(),
		NewKVBytes:   quote.GetNew_kv_bytes(),
		FirstToken:   duration(quote.GetFirst_token_us()),
	}, nil
}

// Fork makes a session with the same log; what is computed is shared until the two come to differ. ErrInvalidState in a busy
// session.
func (s *Session) Fork() (*Session, error) {
	defer runtime.KeepAlive(s)
	number, err := s.handle.get()
	if err != nil {
		return nil, err
	}
	var fork, object uintptr
	if err := check(capi.Inlay_session_fork(number, &fork, &object), &object); err != nil {
		return nil, err
	}
	return newSession(s.model, fork), nil
}

// Rewind cuts the log back to its first tokens. ErrInvalidState in a busy session, ErrInvalidArgument above the log's length.
func (s *Session) Rewind(tokens int) error {
	defer runtime.KeepAlive(s)
	number, err := s.handle.get()
	if err != nil {
		return err
	}
	if tokens < 0 {
		return invalid("the number of tokens is %d, allowed: 0 to the length of the log", tokens)
	}
	return call(func(object *uintptr) int32 { return capi.Inlay_session_rewind(number, tokens, object) })
}

// SessionInfo is the state of a session.
type SessionInfo struct {
	Busy   bool
	Tokens int // in the log
	Cached int // of these, tokens whose KV is in memory
}

// Info tells the session's state.
func (s *Session) Info() (SessionInfo, error) {
	defer runtime.KeepAlive(s)
	number, err := s.handle.get()
	if err != nil {
		return SessionInfo{}, err
	}
	info := capi.NewInlay_session_info()
	defer capi.DeleteInlay_session_info(info)
	capi.Inlay_session_info_init(info)
	if err := call(func(object *uintptr) int32 { return capi.Inlay_session_get_info(number, info, object) }); err != nil {
		return SessionInfo{}, err
	}
	return SessionInfo{info.GetBusy() != 0, int(info.GetNum_tokens()), int(info.GetNum_cached())}, nil
}

// Tokens is the session's log.
func (s *Session) Tokens() ([]int32, error) {
	defer runtime.KeepAlive(s)
	number, err := s.handle.get()
	if err != nil {
		return nil, err
	}
	return readTokens(256, func(tokens []int32, count *int, object *uintptr) int32 {
		return capi.Inlay_session_tokens(number, tokens, count, object)
	})
}

// readTokens reads a list in two calls, again where it grew in between.
func readTokens(guess int, read func(tokens []int32, count *int, object *uintptr) int32) ([]int32, error) {
	for {
		tokens := make([]int32, guess)
		var count int
		var object uintptr
		if err := check(read(tokens, &count, &object), &object); err != nil {
			return nil, err
		}
		if count <= len(tokens) {
			return tokens[:count], nil
		}
		guess = count
	}
}

// Save writes the session to a file, which is replaced as a whole or not at all. ErrInvalidState in a busy session.
func (s *Session) Save(path string) error {
	defer runtime.KeepAlive(s)
	number, err := s.handle.get()
	if err != nil {
		return err
	}
	if err := checkText("path", path); err != nil {
		return err
	}
	return call(func(object *uintptr) int32 { return capi.Inlay_session_save(number, path, object) })
}

// Snapshot is Save to memory. Checksums find damage, not forgery: trust a snapshot as you trust a model.
func (s *Session) Snapshot() ([]byte, error) {
	defer runtime.KeepAlive(s)
	number, err := s.handle.get()
	if err != nil {
		return nil, err
	}
	return bytesOf(func(buffer, object *uintptr) int32 { return capi.Inlay_session_save_buffer(number, buffer, object) })
}

// RestoreInfo says how much of a saved session is there again.
type RestoreInfo struct {
	Tokens   int    // in the log
	Restored int    // of these, tokens whose KV is there again; the others are computed when the session goes on
	Note     string // why not all; "" otherwise
}

// Restore makes a session that goes on as the one that was saved would have. ErrIO when it is damaged, ErrInvalidArgument when
// it is no snapshot, or one of another vocabulary.
func (m *Model) Restore(path string) (*Session, RestoreInfo, error) {
	if err := checkText("path", path); err != nil {
		return nil, RestoreInfo{}, err
	}
	return m.restore(func(model uintptr, session *uintptr, info capi.Inlay_restore_info, object *uintptr) int32 {
		return capi.Inlay_session_restore(model, path, session, info, object)
	})
}

// RestoreSnapshot is Restore from memory.
func (m *Model) RestoreSnapshot(snapshot []byte) (*Session, RestoreInfo, error) {
	return m.restore(func(model uintptr, session *uintptr, info capi.Inlay_restore_info, object *uintptr) int32 {
		return capi.Inlay_session_restore_buffer(model, snapshot, session, info, object)
	})
}

func (m *Model) restore(restore func(uintptr, *uintptr, capi.Inlay_restore_info, *uintptr) int32) (*Session, RestoreInfo, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return nil, RestoreInfo{}, err
	}
	info := capi.NewInlay_restore_info()
	defer capi.DeleteInlay_restore_info(info)
	capi.Inlay_restore_info_init(info)
	var session, object uintptr
	if err := check(restore(number, &session, info, &object), &object); err != nil {
		return nil, RestoreInfo{}, err
	}
	note := info.GetNote()
	for !utf8.ValidString(note) && note != "" { // cut where it was too long
		note = note[:len(note)-1]
	}
	return newSession(m, session), RestoreInfo{int(info.GetNum_tokens()), int(info.GetNum_restored()), note}, nil
}
