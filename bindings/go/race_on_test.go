//go:build race

package inlay_test

// The race detector keeps memory of its own and takes ten times as long.
const raceDetector = true
