// Package browser drives Debian's Chromium for tests of pages: it opens pages as a user's browser does, and reports
// what is wrong with them. It does not decide what a page must show.
//
// Theory of operation. Chromium runs without a window, in process and mount namespaces of its own, so that the end of
// its first process ends all of them. The tests talk to it over two pipes with the DevTools protocol
// (--remote-debugging-pipe), so no port is open. Each page has a browser context of its own: no cookie, cache or
// storage of another one. Chromium resolves no name: a page that refers to another origin fails, and the request is
// recorded.
package browser

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"

	"fairlead/internal/child"
	"fairlead/test/place"
)

// flags make Chromium silent: nothing but what pages ask for leaves it.
var flags = []string{"--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-dev-shm-usage",
	"--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars", "--disable-background-networking",
	"--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
	"--font-render-hinting=none", "--lang=en", "--force-color-profile=srgb",
	"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE [::1]"}

// interpreted keeps scripts from the optimizing compilers: axe-core runs once per page, and compiling it costs more than
// it saves. Benchmarks measure pages as users' browsers show them.
const interpreted = "--js-flags=--no-opt,--no-maglev,--single-threaded,--min-semi-space-size=64"

// script runs Chromium as the second process of its namespaces: the first one has no default signal handlers.
const script = `mount --make-rprivate / && mount -t proc proc /proc && chromium "$@"; exit $?`

// Browser is a running Chromium. Its methods may be called concurrently.
type Browser struct{ link *link }

// Start starts Chromium until the test ends, in the network namespace, or in that of the caller if it is nil. The
// caller must be root.
func Start(t testing.TB, in *os.File) *Browser {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatal("chromium is not installed, but the test must render pages: install it (make test does)")
	}
	commands, toChromium := pipe(t)
	fromChromium, answers := pipe(t)
	args := slices.Concat([]string{"-c", script, "sh", "--user-data-dir=" + t.TempDir()}, flags)
	if _, measures := t.(*testing.B); !measures {
		args = append(args, interpreted)
	}
	cmd := exec.Command("sh", append(args, "about:blank")...)
	cmd.ExtraFiles = []*os.File{commands, answers}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	ctx, cancel := context.WithCancel(context.Background())
	process, err := child.Start(ctx, cmd, child.Place{Netns: in, Contained: true})
	commands.Close()
	answers.Close()
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	b := &Browser{newLink(toChromium)}
	read := make(chan struct{})
	go func() { defer close(read); b.link.read(fromChromium) }()
	t.Cleanup(func() {
		cancel()
		<-process.Done()
		<-read
		if t.Failed() {
			t.Logf("chromium wrote:\n%s", errs.Bytes())
		}
	})
	if err := b.link.call(t.Context(), "", "Browser.getVersion", nil, nil); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	return b
}

// pipe returns both ends of a pipe, which are closed when the test ends.
func pipe(t testing.TB) (from, to *os.File) {
	t.Helper()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { from.Close(); to.Close() })
	return from, to
}

// limit returns a context for one wait.
func limit(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), place.Timeout)
}
