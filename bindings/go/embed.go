package inlay

import (
	"context"
	"errors"
	"runtime"
)

// EmbedOptions of Embed and EmbedTokens. The zero value has the defaults.
type EmbedOptions struct {
	Embedding    Embedding // EmbeddingNone is EmbeddingDefault here
	Normalise    bool      // scaled to length 1; EmbeddingDefault does what the model's files say
	NoSpecial    bool      // as in Request
	PlainSpecial bool      // as in Request
	Priority     int       // as in Request
	ShareKey     uint64    // as in Request
}

// EmbedAtOnce is how many inputs of one call are under way at most: enough to fill any step, and few beside the engine's queue.
const EmbedAtOnce = 512

// Embed gives a vector for each text, in their order, each what it would be alone; they are computed side by side, in sessions of
// their own. The first failure ends all of it, as the end of ctx does. options may be nil. In a host-driven engine somebody else has to
// call Step meanwhile.
func (m *Model) Embed(ctx context.Context, texts []string, options *EmbedOptions) ([][]float32, error) {
	return m.embed(ctx, len(texts), options, func(r *Request, i int) { r.Text = texts[i] })
}

// EmbedTokens is Embed of tokens, as models without a tokenizer need it.
func (m *Model) EmbedTokens(ctx context.Context, inputs [][]int32, options *EmbedOptions) ([][]float32, error) {
	return m.embed(ctx, len(inputs), options, func(r *Request, i int) { r.Tokens = inputs[i] })
}

func (m *Model) embed(ctx context.Context, count int, options *EmbedOptions, setInput func(*Request, int)) ([][]float32, error) {
	defer runtime.KeepAlive(m)
	if options == nil {
		options = &EmbedOptions{}
	}
	request := Request{Embedding: options.Embedding, Normalise: options.Normalise, NoSpecial: options.NoSpecial,
		PlainSpecial: options.PlainSpecial, Priority: options.Priority, ShareKey: options.ShareKey}
	if request.Embedding == EmbeddingNone {
		request.Embedding = EmbeddingDefault
	}
	return m.vectors(ctx, count, request, setInput, func(c *Completion) []float32 { return c.Embedding })
}

// ClassifyOptions of Classify and ClassifyPairs. The zero value has the defaults.
type ClassifyOptions struct {
	Classification Classification // ClassificationNone is ClassificationDefault here
	PlainSpecial   bool           // as in Request
	Priority       int            // as in Request
	ShareKey       uint64         // as in Request
}

// Classify gives the scores of the model's labels for each text, in the way of Embed.
func (m *Model) Classify(ctx context.Context, texts []string, options *ClassifyOptions) ([][]float32, error) {
	return m.classify(ctx, len(texts), options, func(r *Request, i int) { r.Text = texts[i] })
}

// ClassifyPairs is Classify of pairs: text with each of others, as a cross-encoder scores a query's documents.
func (m *Model) ClassifyPairs(ctx context.Context, text string, others []string, options *ClassifyOptions) ([][]float32, error) {
	return m.classify(ctx, len(others), options, func(r *Request, i int) { r.Text, r.TextPair = text, &others[i] })
}

func (m *Model) classify(ctx context.Context, count int, options *ClassifyOptions, setInput func(*Request, int)) ([][]float32, error) {
	defer runtime.KeepAlive(m)
	if options == nil {
		options = &ClassifyOptions{}
	}
	request := Request{Classification: options.Classification, PlainSpecial: options.PlainSpecial, Priority: options.Priority,
		ShareKey: options.ShareKey}
	if request.Classification == ClassificationNone {
		request.Classification = ClassificationDefault
	}
	return m.vectors(ctx, count, request, setInput, func(c *Completion) []float32 { return c.Scores })
}

// vectors submits request with each of count inputs, and gives what take finds in each completion.
func (m *Model) vectors(ctx context.Context, count int, request Request, setInput func(*Request, int), take func(*Completion) []float32) ([][]float32, error) {
	vectors := make([][]float32, 0, count)
	streams := make([]*Stream, 0, count)
	end := func(s *Stream) {
		s.Close()
		s.session.Close()
	}
	defer func() {
		for _, stream := range streams[len(vectors):] {
			end(stream)
		}
	}()
	for len(vectors) < count {
		if next := len(streams); next < count && next-len(vectors) < EmbedAtOnce {
			setInput(&request, next)
			stream, err := m.submitAlone(ctx, request)
			if err == nil {
				streams = append(streams, stream)
				continue
			}
			// A full queue has room again when one of ours has ended.
			if !errors.Is(err, ErrResourceExhausted) || next == len(vectors) {
				return nil, err
			}
		}
		stream := streams[len(vectors)]
		completion, err := stream.Collect(ctx)
		if err != nil {
			return nil, err
		}
		end(stream)
		vectors = append(vectors, take(completion))
	}
	return vectors, nil
}

// submitAlone submits in a session that has only this request.
func (m *Model) submitAlone(ctx context.Context, request Request) (*Stream, error) {
	session, err := m.NewSession()
	if err != nil {
		return nil, err
	}
	stream, err := session.Submit(ctx, request)
	if err != nil {
		session.Close()
	}
	return stream, err
}
