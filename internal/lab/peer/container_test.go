package peer

import "testing"

// TestCauseIn: what docker's CLI prints after the cause of a failure is omitted.
func TestCauseIn(t *testing.T) {
	const log = `time="2026-11-27T10:00:00Z" level=error msg="error waiting for container: context canceled"`
	const cause = "docker: Error response from daemon: Bind for 0.0.0.0:20000 failed: port is already allocated"
	for output, want := range map[string]string{
		cause + "\n\nRun 'docker run --help' for more information\n":         cause,
		cause + ".\nSee 'docker run --help'.\n" + log + "\n":                 cause + ".",
		log + "\n" + cause + ": the driver\nrefuses it\n" + log:              cause + ": the driver; refuses it",
		"panic: no control channel\n\ngoroutine 1 [running]:\n" + log + "\n": "panic: no control channel; goroutine 1 [running]:",
		log + "\n": log,
		"":         "",
	} {
		if got := causeIn(output); got != want {
			t.Errorf("%q: got %q, want %q", output, got, want)
		}
	}
}
