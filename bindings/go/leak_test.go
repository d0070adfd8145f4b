package inlay_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"inlay.dev/go/inlay"
	"inlay.dev/go/inlay/internal/cref"
)

func residentBytes(t *testing.T) int64 {
	runtime.GC()
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// Every option that takes memory of C's, errors, text, and the ways to end, ten thousand times.
func TestTenThousandRequestsLeakNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector keeps memory of its own")
	}
	engine := newEngine(t, nil)
	// A KV cache that is touched as a whole before the count begins.
	model, err := engine.LoadModel(background(t), "../../tests/data/models/pocket-1m", &inlay.ModelOptions{KVBudget: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	kept := newSession(t, model)
	ctx := background(t) // one: each is kept to the end of the test
	once := func(i int) {
		session, err := model.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		stream, err := session.Submit(ctx, inlay.Request{
			Text: "Once upon a time, ", MaxTokens: 3, StopStrings: []string{"never", "ever"}, StopTokens: []int32{3},
			LogitBias: map[int32]float32{5: 1, 6: 2}, TopLogprobs: 2})
		if err != nil {
			t.Fatal(err)
		}
		switch i % 4 {
		case 0:
			if _, err := stream.Collect(ctx); err != nil {
				t.Fatal(err)
			}
		case 1:
			stream.Scan() // and the rest is dropped
		case 2:
			stream.Cancel()
			stream.Wait(ctx)
		}
		stream.Close()
		session.Close()
		if _, err := kept.Submit(ctx, inlay.Request{Text: "x", TopP: 2}); err == nil {
			t.Fatal("TopP 2 was taken")
		}
		if _, err := model.RenderChat(inlay.Conversation(inlay.User("hello"))); err != nil {
			t.Fatal(err)
		}
		if i%16 == 0 {
			snapshot, err := kept.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			restored, _, err := model.RestoreSnapshot(snapshot)
			if err != nil {
				t.Fatal(err)
			}
			restored.Close()
			stats(t, engine)
		}
	}
	for i := 0; i < 1000; i++ { // what is kept for good is there after these
		once(i)
	}
	resident, inC, inGo := residentBytes(t), cref.Allocated(), goBytes()
	for i := 0; i < 10000; i++ {
		once(i)
	}
	resident, inC, inGo = residentBytes(t)-resident, cref.Allocated()-inC, goBytes()-inGo
	t.Logf("after 10,000 requests more: %d KiB resident, %d bytes of C, %d bytes of Go", resident/1024, inC, inGo)
	// The smallest leak of C's, a block for each request, would be 320,000; the resident set comes and goes by more.
	if inC > 200000 || inGo > 200000 || resident > 8<<20 {
		t.Errorf("the process grew by %d bytes, C's heap by %d, Go's by %d", resident, inC, inGo)
	}
}

func goBytes() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
