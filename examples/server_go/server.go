package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"inlay.dev/go/inlay"
)

type limits struct {
	concurrent, tokens, choices int
	body                        int64
	duration, write             time.Duration
}

type server struct {
	engine   *inlay.Engine
	model    *inlay.Model
	name     string
	created  int64
	defaults inlay.Request
	limits   limits
	key      []byte // of requests; empty: none is asked for
	local    bool   // nobody but this machine can reach it, if nobody tricks its browser
	routes   map[string]route
	slots    chan struct{}
	stopping atomic.Bool

	mu      sync.Mutex
	answers map[string]int // by path and status
}

type route struct {
	method string
	serve  func(http.ResponseWriter, *http.Request) error
	costly bool // takes a slot
	open   bool // asks for no key
}

func newServer(engine *inlay.Engine, model *inlay.Model, o *options, address net.Addr) (*server, error) {
	defaults, err := model.RequestDefaults()
	if err != nil {
		return nil, err
	}
	s := &server{engine: engine, model: model, name: o.name, created: time.Now().Unix(), defaults: defaults, limits: o.limits,
		key: []byte(o.apiKey), slots: make(chan struct{}, o.limits.concurrent), answers: map[string]int{}}
	if tcp, ok := address.(*net.TCPAddr); ok {
		s.local = tcp.IP.IsLoopback()
	}
	s.routes = map[string]route{
		"/v1/chat/completions": {method: http.MethodPost, serve: s.chat, costly: true},
		"/v1/completions":      {method: http.MethodPost, serve: s.completions, costly: true},
		"/v1/embeddings":       {method: http.MethodPost, serve: s.embeddings, costly: true},
		"/v1/models":           {method: http.MethodGet, serve: s.models},
		"/metrics":             {method: http.MethodGet, serve: s.metrics},
		"/health":              {method: http.MethodGet, serve: s.health, open: true},
	}
	return s, nil
}

// ServeHTTP refuses what it can before it looks at a body.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	counted := &countingWriter{ResponseWriter: w}
	path := r.URL.Path
	defer func() {
		if value := recover(); value != nil {
			log.Printf("%s: %v\n%s", path, value, debug.Stack())
			s.fail(counted, refuse(500, "server_error", "internal_error", "an error of the server's own"))
		}
		s.count(path, counted.status)
	}()
	if err := s.route(counted, r, &path); err != nil {
		s.fail(counted, err)
	}
}

func (s *server) route(w http.ResponseWriter, r *http.Request, path *string) error {
	if s.local {
		// A page of another site may know the address, but its browser tells where it came from.
		if host, _, err := net.SplitHostPort(r.Host); !isLocal(r.Host) && (err != nil || !isLocal(host)) {
			return refuse(403, "invalid_request_error", "host_not_allowed", "the host %q is not this machine", r.Host)
		}
		if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
			return refuse(403, "invalid_request_error", "origin_not_allowed", "pages of %q may not use this server", origin)
		}
	}
	route, ok := s.routes[*path]
	if name := strings.TrimPrefix(*path, "/v1/models/"); !ok && name != *path {
		route, ok = s.routes["/v1/models"], true
		*path = "/v1/models/"
	}
	if !ok {
		unknown := *path
		*path = "other"
		return refuse(404, "invalid_request_error", "unknown_url", "there is no %s %s", r.Method, unknown)
	}
	if r.Method != route.method {
		w.Header().Set("Allow", route.method)
		return refuse(405, "invalid_request_error", "method_not_allowed", "%s is wanted, not %s", route.method, r.Method)
	}
	if !route.open && !s.authorised(r) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return refuse(401, "invalid_request_error", "invalid_api_key", "the API key is missing or wrong")
	}
	if route.costly {
		if s.stopping.Load() {
			return refuse(503, "server_error", "stopping", "the server stops")
		}
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		default:
			w.Header().Set("Retry-After", "1")
			return refuse(429, "rate_limit_error", "too_many_requests", "%d requests run, which is the limit", s.limits.concurrent)
		}
		ctx, cancel := context.WithTimeout(r.Context(), s.limits.duration)
		defer cancel()
		r = r.WithContext(ctx)
	}
	r.Body = http.MaxBytesReader(w, r.Body, s.limits.body)
	return route.serve(w, r)
}

func isLocal(host string) bool {
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (s *server) authorised(r *http.Request) bool {
	if len(s.key) == 0 {
		return true
	}
	given := sha256.Sum256([]byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
	wanted := sha256.Sum256(s.key)
	return subtle.ConstantTimeCompare(given[:], wanted[:]) == 1
}

// decode reads a request's body: to its end, for only then net/http watches whether the client is still there.
func decode(r *http.Request, to any) error {
	connection, _ := r.Context().Value(connectionKey{}).(net.Conn)
	if connection != nil {
		// http.Server.ReadTimeout would end long answers too.
		_ = connection.SetReadDeadline(time.Now().Add(time.Minute))
		defer connection.SetReadDeadline(time.Time{})
	}
	data, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return refuse(413, "invalid_request_error", "body_too_large", "the body is larger than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return refuse(400, "invalid_request_error", "body_cut", "the body ended early: %v", err)
	}
	err = json.Unmarshal(data, to)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return badParameter(wrong.Field, "invalid_type", "%s is a %s, which is not what it must be", wrong.Field, wrong.Value)
	}
	if err != nil {
		return refuse(400, "invalid_request_error", "invalid_json", "the body is no JSON: %v", err)
	}
	return nil
}

// checkModel is for requests that name one.
func (s *server) checkModel(name string) error {
	if name == "" || name == s.name {
		return nil
	}
	p := refuse(404, "invalid_request_error", "model_not_found", "the model %q is not here; %q is", name, s.name)
	parameter := "model"
	p.Param = &parameter
	return p
}

func (s *server) models(w http.ResponseWriter, r *http.Request) error {
	model := map[string]any{"id": s.name, "object": "model", "created": s.created, "owned_by": "inlay"}
	if name := strings.TrimPrefix(r.URL.Path, "/v1/models/"); name != r.URL.Path {
		if err := s.checkModel(name); err != nil {
			return err
		}
		return answer(w, model)
	}
	return answer(w, map[string]any{"object": "list", "data": []any{model}})
}

func (s *server) health(w http.ResponseWriter, _ *http.Request) error {
	if s.stopping.Load() {
		return refuse(503, "server_error", "stopping", "the server stops")
	}
	if _, err := s.engine.Stats(); err != nil {
		return refuse(503, "server_error", "engine_failed", "%v", err)
	}
	return answer(w, map[string]any{"status": "ok"})
}

func (s *server) metrics(w http.ResponseWriter, _ *http.Request) error {
	text, err := s.engine.Metrics()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	var own strings.Builder
	fmt.Fprintf(&own, "# HELP inlay_server_requests_running HTTP requests that generate or embed.\n# TYPE inlay_server_requests_running gauge\n")
	fmt.Fprintf(&own, "inlay_server_requests_running %d\n", len(s.slots))
	fmt.Fprintf(&own, "# HELP inlay_server_answers_total HTTP requests, by path and status.\n# TYPE inlay_server_answers_total counter\n")
	s.mu.Lock()
	keys := make([]string, 0, len(s.answers))
	for key := range s.answers {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		fmt.Fprintf(&own, "inlay_server_answers_total{%s} %d\n", key, s.answers[key])
	}
	s.mu.Unlock()
	_, _ = w.Write([]byte(text + own.String()))
	return nil
}

// count knows only paths that are routes, so that nobody can fill it.
func (s *server) count(path string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[fmt.Sprintf("path=%q,code=\"%d\"", path, status)]++
}

// answer does not tell of errors of writing: there is nobody left to be told.
func answer(w http.ResponseWriter, value any) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(encode(value))
	return nil
}

// fail answers with an error, if nothing was answered before.
func (s *server) fail(w *countingWriter, err error) {
	p := toProblem(err)
	if w.status != 0 {
		return
	}
	if errors.Is(err, context.Canceled) && !s.stopping.Load() {
		p.status = 499 // the client has gone: for the metrics
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_, _ = w.Write(encode(p.json()))
}

// toProblem says in OpenAI's words what the library said.
func toProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	say := func(status int, kind string) *problem {
		var e *inlay.Error
		if errors.As(err, &e) {
			return refuse(status, kind, strings.ToLower(strings.TrimPrefix(e.Name(), "INLAY_")), "%s", e.Message)
		}
		return refuse(status, kind, "internal_error", "%v", err)
	}
	switch {
	case errors.Is(err, inlay.ErrInvalidArgument), errors.Is(err, inlay.ErrUnsupported), errors.Is(err, inlay.ErrNotFound):
		return say(400, "invalid_request_error")
	case errors.Is(err, inlay.ErrResourceExhausted):
		return say(429, "rate_limit_error")
	case errors.Is(err, context.DeadlineExceeded):
		return say(504, "timeout_error")
	case errors.Is(err, inlay.ErrCancelled), errors.Is(err, inlay.ErrClosed):
		return say(503, "server_error")
	}
	return say(500, "server_error")
}

// shareKey gives each user a share of the engine of their own.
func shareKey(user string) uint64 {
	if user == "" {
		return 0
	}
	hash := fnv.New64a()
	hash.Write([]byte(user))
	return hash.Sum64()
}

// countingWriter remembers the status.
type countingWriter struct {
	http.ResponseWriter
	status int
}

func (w *countingWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(data []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(data)
}

func (w *countingWriter) Flush() {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

type connectionKey struct{}

// withConnection lets a handler set a deadline for each write: one for the whole answer would end long streams.
func withConnection(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connection)
}
