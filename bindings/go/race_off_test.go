//go:build !race

package inlay_test

const raceDetector = false
