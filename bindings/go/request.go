package inlay

import (
	"context"
	"fmt"
	"time"

	"inlay.dev/go/inlay/internal/capi"
)

// Logits says which logits a request reports, as EventLogits.
type Logits int32

// LogitsNone is the default.
const (
	LogitsNone      Logits = 0
	LogitsLast      Logits = 1 // those the first token is chosen from
	LogitsAll       Logits = 2 // of every prompt token computed
	LogitsPositions Logits = 3 // of Request.LogitsPositions
	LogitsGenerated Logits = 4 // of every choice
)

// Classification says what the scores of labels are, of their logits.
type Classification int32

// ClassificationNone is a Request's default: it generates.
const (
	ClassificationNone    Classification = 0
	ClassificationDefault Classification = 1 // as the model's files say; where they do not, ClassificationSigmoid of a single label and ClassificationLogits of several
	ClassificationLogits  Classification = 2
	ClassificationSigmoid Classification = 3 // of each logit
	ClassificationSoftmax Classification = 4 // over the labels
)

// Embedding says how the last hidden states of a log's tokens become its vector.
type Embedding int32

// EmbeddingNone is a Request's default: it generates.
const (
	EmbeddingNone    Embedding = 0
	EmbeddingDefault Embedding = 1 // as the model's files say; where they do not, EmbeddingMean of an encoder and EmbeddingLast of others
	EmbeddingMean    Embedding = 2
	EmbeddingCLS     Embedding = 3 // the first token's
	EmbeddingLast    Embedding = 4 // the last token's
)

// Request is the input of a generation and how to generate. The zero value of every option is its default.
type Request struct {
	// The input: at most one of them. Without any the session goes on from its log.
	Text   string
	Tokens []int32
	Chat   *Chat // the whole conversation: it takes the place of the log, of which what is the same stays computed

	Replace      bool // the input is the whole new log, instead of following it
	NoSpecial    bool // text: do not put around it what the tokenizer puts around a text, such as BOS
	PlainSpecial bool // text: what spells a special token is plain text; for text that is not trusted

	MaxTokens   int  // to generate; 0: until a stop or the end of the context
	PromptOnly  bool // generate nothing, only compute the prompt
	IgnoreEOS   bool
	StopTokens  []int32
	StopStrings []string // generation stops before them, and no part of one is emitted; at most 64 of at most 1024 bytes

	Temperature       float32 // 0: greedy
	TopK              int     // 0: off
	TopP              float32 // 0 or 1: off
	MinP              float32 // 0: off
	RepetitionPenalty float32 // 0 or 1: off; of prompt and generated tokens
	FrequencyPenalty  float32
	PresencePenalty   float32
	Seed              uint64            // the same seed, input and options give the same tokens
	LogitBias         map[int32]float32 // added to the logit; negative infinity forbids the token

	Logprobs        bool // of each chosen token
	TopLogprobs     int  // of that many of the likeliest too, at most 128
	Logits          Logits
	LogitsPositions []int64
	ScorePrompt     bool // EventScores with the log-probability of each prompt token

	// Embedding asks for one vector of the whole log, as EventEmbedding, instead of a generation: MaxTokens, Logits, ScorePrompt and
	// Resume are not for it. Encoders can do nothing else.
	Embedding Embedding
	Normalise bool // scaled to length 1; EmbeddingDefault does what the model's files say

	// TextPair makes a pair of texts of Text, which is the session's whole new log; for encoders. TokenTypes are those of Tokens, of
	// encoders that have several.
	TextPair   *string
	TokenTypes []int32
	// Classification asks for the scores of the labels of a model that has some, as EventClassification, instead of a generation.
	Classification Classification

	Priority int    // higher runs first
	Resume   bool   // the last generation goes on: random draws and penalties continue. The seed must be the same
	ShareKey uint64 // requests of one key count against one share of the engine, such as a user's; 0: the session's own
}

// cRequest is a Request in C. Free it after the call it is for.
type cRequest struct {
	options capi.Inlay_request_options
	memory  capi.Memory
}

func (c *cRequest) free() {
	capi.DeleteInlay_request_options(c.options)
	c.memory.Free()
}

func textFlags(noSpecial, plainSpecial bool) uint32 {
	var flags uint32
	if !noSpecial {
		flags |= uint32(AddSpecial)
	}
	if !plainSpecial {
		flags |= uint32(ParseSpecial)
	}
	return flags
}

func newCRequest(ctx context.Context, r *Request) (*cRequest, error) {
	c := &cRequest{options: capi.NewInlay_request_options()}
	capi.Inlay_request_options_init_sized(c.options, capi.SizeofRequestOptions)
	if err := c.fill(ctx, r); err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

func (c *cRequest) fill(ctx context.Context, r *Request) error {
	o, m := c.options, &c.memory
	var n narrow
	if r.Text != "" || r.TextPair != nil {
		o.SetText(m.String(r.Text))
		o.SetText_bytes(len(r.Text))
	}
	if r.Tokens != nil {
		o.SetTokens(m.Int32s(r.Tokens))
		o.SetNum_tokens(len(r.Tokens))
	}
	if r.Chat != nil {
		json, err := r.Chat.json()
		if err != nil {
			return err
		}
		o.SetChat(m.String(json))
		o.SetChat_bytes(len(json))
	}
	o.SetInput_mode(flag(r.Replace))
	o.SetText_flags(textFlags(r.NoSpecial, r.PlainSpecial))
	switch {
	case r.PromptOnly:
		o.SetMax_tokens(0)
	case r.MaxTokens < 0:
		n.fail("MaxTokens", r.MaxTokens)
	case r.MaxTokens > 0:
		o.SetMax_tokens(n.int32("MaxTokens", r.MaxTokens))
	}
	o.SetIgnore_eos(flag(r.IgnoreEOS))
	o.SetStop_tokens(m.Int32s(r.StopTokens))
	o.SetNum_stop_tokens(len(r.StopTokens))
	for _, stop := range r.StopStrings {
		n.text("StopStrings", stop)
	}
	o.SetStop_strings(m.Strings(r.StopStrings))
	o.SetNum_stop_strings(len(r.StopStrings))

	o.SetTemperature(r.Temperature)
	o.SetTop_k(n.int32("TopK", r.TopK))
	if r.TopP != 0 {
		o.SetTop_p(r.TopP)
	}
	o.SetMin_p(r.MinP)
	if r.RepetitionPenalty != 0 {
		o.SetRepetition_penalty(r.RepetitionPenalty)
	}
	o.SetFrequency_penalty(r.FrequencyPenalty)
	o.SetPresence_penalty(r.PresencePenalty)
	o.SetSeed(r.Seed)
	o.SetLogit_bias(m.LogitBias(r.LogitBias))
	o.SetNum_logit_bias(len(r.LogitBias))

	if r.TopLogprobs != 0 {
		o.SetNum_logprobs(n.int32("TopLogprobs", r.TopLogprobs))
	} else if r.Logprobs {
		o.SetNum_logprobs(0)
	}
	o.SetLogits(int32(r.Logits))
	o.SetLogits_positions(m.Int64s(r.LogitsPositions))
	o.SetNum_logits_positions(len(r.LogitsPositions))
	o.SetScore_prompt(flag(r.ScorePrompt))
	o.SetPriority(n.int32("Priority", r.Priority))
	o.SetResume(uint32(flag(r.Resume)))
	o.SetShare_key(r.ShareKey)
	if r.TextPair != nil {
		o.SetText_pair(m.String(*r.TextPair))
		o.SetText_pair_bytes(len(*r.TextPair))
	}
	if r.TokenTypes != nil {
		if len(r.TokenTypes) != len(r.Tokens) {
			return &Error{Code: ErrInvalidArgument, Message: fmt.Sprintf("%d TokenTypes of %d Tokens", len(r.TokenTypes), len(r.Tokens))}
		}
		o.SetToken_types(m.Int32s(r.TokenTypes))
	}
	o.SetClassification(int32(r.Classification))
	o.SetEmbedding(int32(r.Embedding))
	o.SetNormalise(uint32(flag(r.Normalise)))
	// The scheduler takes earlier deadlines first.
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			return contextError(context.DeadlineExceeded, "before the request was submitted")
		}
		o.SetDeadline_us(n.micros("deadline", left))
	}
	return n.err
}

// requestOf is the way back: of the options that a model's files set.
func requestOf(o capi.Inlay_request_options) Request {
	r := Request{
		Temperature:       o.GetTemperature(),
		TopK:              int(o.GetTop_k()),
		TopP:              o.GetTop_p(),
		MinP:              o.GetMin_p(),
		RepetitionPenalty: o.GetRepetition_penalty(),
		FrequencyPenalty:  o.GetFrequency_penalty(),
		PresencePenalty:   o.GetPresence_penalty(),
		Seed:              o.GetSeed(),
		IgnoreEOS:         o.GetIgnore_eos() != 0,
	}
	if max := o.GetMax_tokens(); max > 0 {
		r.MaxTokens = int(max)
	}
	return r
}
