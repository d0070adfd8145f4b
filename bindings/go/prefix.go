package inlay

import (
	"runtime"

	"inlay.dev/go/inlay/internal/capi"
)

// PrefixOptions of NewPrefix: exactly one of Text, Tokens and Chat.
type PrefixOptions struct {
	Text   string
	Tokens []int32
	Chat   *Chat // without what begins the assistant's turn

	NoSpecial    bool   // as in Request
	PlainSpecial bool   // as in Request
	Unpinned     bool   // only the name and the tokens; otherwise it is computed once, and its KV is kept
	Budget       uint64 // bytes of KV that it may pin; 0: the whole cache
}

// Prefix is a name for tokens that many sessions begin with: a system prompt, a document.
type Prefix struct {
	handle handle
	model  *Model
}

func newPrefix(model *Model, number uintptr) *Prefix {
	p := &Prefix{model: model}
	p.handle.set("prefix", number)
	runtime.SetFinalizer(p, func(p *Prefix) { capi.Inlay_prefix_release(p.handle.take()) })
	return p
}

// NewPrefix names a prefix. ErrInvalidState when the model has one of that name; ErrResourceExhausted when it would not fit.
func (m *Model) NewPrefix(name string, options PrefixOptions) (*Prefix, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return nil, err
	}
	if err := checkText("name", name); err != nil {
		return nil, err
	}
	o := capi.NewInlay_prefix_options()
	defer capi.DeleteInlay_prefix_options(o)
	capi.Inlay_prefix_options_init(o)
	var memory capi.Memory
	defer memory.Free()
	o.SetPin(uint32(flag(!options.Unpinned)))
	if options.Text != "" {
		o.SetText(memory.String(options.Text))
		o.SetText_bytes(len(options.Text))
	}
	if options.Tokens != nil {
		o.SetTokens(memory.Int32s(options.Tokens))
		o.SetNum_tokens(len(options.Tokens))
	}
	if options.Chat != nil {
		chat := *options.Chat
		chat.NoGenerationPrompt = true
		json, err := chat.json()
		if err != nil {
			return nil, err
		}
		o.SetChat(memory.String(json))
		o.SetChat_bytes(len(json))
	}
	o.SetText_flags(textFlags(options.NoSpecial, options.PlainSpecial))
	o.SetBudget_bytes(options.Budget)
	var prefix, object uintptr
	if err := check(capi.Inlay_prefix_create(number, name, o, &prefix, &object), &object); err != nil {
		return nil, err
	}
	return newPrefix(m, prefix), nil
}

// FindPrefix gives another handle on a prefix. ErrNotFound when the model has none of that name.
func (m *Model) FindPrefix(name string) (*Prefix, error) {
	defer runtime.KeepAlive(m)
	number, err := m.handle.get()
	if err != nil {
		return nil, err
	}
	if err := checkText("name", name); err != nil {
		return nil, err
	}
	var prefix, object uintptr
	if err := check(capi.Inlay_prefix_find(number, name, &prefix, &object), &object); err != nil {
		return nil, err
	}
	return newPrefix(m, prefix), nil
}

// Close gives the handle back: the last one's forgets the prefix, and sessions opened from it go on. It returns nil, also when
// it was closed before.
func (p *Prefix) Close() error {
	runtime.SetFinalizer(p, nil)
	capi.Inlay_prefix_release(p.handle.take())
	return nil
}

// Open makes a session whose log is the prefix.
func (p *Prefix) Open() (*Session, error) {
	defer runtime.KeepAlive(p)
	number, err := p.handle.get()
	if err != nil {
		return nil, err
	}
	var session, object uintptr
	if err := check(capi.Inlay_prefix_open(number, &session, &object), &object); err != nil {
		return nil, err
	}
	return newSession(p.model, session), nil
}

// Pin computes the prefix and keeps its KV, or lets it be evicted.
func (p *Prefix) Pin(pinned bool) error {
	defer runtime.KeepAlive(p)
	number, err := p.handle.get()
	if err != nil {
		return err
	}
	return call(func(object *uintptr) int32 { return capi.Inlay_prefix_pin(number, flag(pinned), object) })
}

// PrefixInfo is the state of a prefix.
type PrefixInfo struct {
	Pinned  bool
	Tokens  int
	Cached  int    // of these, tokens whose KV is in memory
	KVBytes uint64 // of its tokens: what pinning it holds
}

// Info tells the prefix's state.
func (p *Prefix) Info() (PrefixInfo, error) {
	defer runtime.KeepAlive(p)
	number, err := p.handle.get()
	if err != nil {
		return PrefixInfo{}, err
	}
	info := capi.NewInlay_prefix_info()
	defer capi.DeleteInlay_prefix_info(info)
	capi.Inlay_prefix_info_init(info)
	if err := call(func(object *uintptr) int32 { return capi.Inlay_prefix_get_info(number, info, object) }); err != nil {
		return PrefixInfo{}, err
	}
	return PrefixInfo{
		Pinned:  info.GetPinned() != 0,
		Tokens:  int(info.GetNum_tokens()),
		Cached:  int(info.GetNum_cached()),
		KVBytes: info.GetKv_bytes(),
	}, nil
}
