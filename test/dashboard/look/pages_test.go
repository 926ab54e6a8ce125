package look_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"fairlead/internal/frontend/dashboard"
	"fairlead/test/browser"
)

// telephone and desktop are the sizes at which pages are read.
var telephone, desktop = browser.View{Width: 360, Height: 740}, browser.View{Width: 1440, Height: 900}

// pagesOf returns the paths of all pages that show a daemon, with a text that each must show.
func pagesOf(name func(string) string) map[string]string {
	return map[string]string{
		"/":                                "status 503",
		"/ports":                           "8080",
		"/paths":                           "would decide",
		"/explain?from=192.0.2.7&to=:8080": "enters the sandbox",
		"/services":                        "the database does not answer",
		"/service?name=" + url.QueryEscape(name("web")): "172.30.0.3",
		"/flows":        "8080",
		"/events":       "firewalld",
		"/lab":          "fairlead lab",
		"/routers":      "absent.example.com",
		"/certificates": "certificate",
		"/cluster":      "192.0.2.10",
	}
}

// snap writes a picture of the page into the folder FAIRLEAD_SCREENSHOTS, if it is set.
func snap(p *browser.Page, name ...any) {
	if dir := os.Getenv("FAIRLEAD_SCREENSHOTS"); dir != "" {
		file := regexp.MustCompile(`\?[^-]*|/`).ReplaceAllString(fmt.Sprint(name...), "_")
		p.Screenshot(filepath.Join(dir, file+".png"))
	}
}

// check fails the test for what is wrong with an open page.
func check(t *testing.T, p *browser.Page, what string) {
	t.Helper()
	for _, problem := range p.Problems() {
		t.Errorf("%s: %s", what, problem)
	}
	for _, v := range p.Violations() {
		t.Errorf("%s: %.2000s", what, v)
	}
	if wide := p.Overflow(); wide > 0 {
		t.Errorf("%s: the document is %d pixels wider than the window: %s", what, wide, p.Text(widest))
	}
}

// widest names the elements that are wider than the window and do not scroll.
const widest = `[...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, .picture") &&
	e.getBoundingClientRect().right > innerWidth + 1).slice(0,
		5).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 40)).join("; ")`

// TestEveryPage opens every page in both colour schemes, on a telephone and on a desktop.
func TestEveryPage(t *testing.T) {
	b := browser.Start(t, nil)
	for world, name := range map[string]func(string) string{"usual": plain, "hostile": attacking} {
		at := serveHost(t, newDaemon(t, name), name)
		p := b.Page(t, desktop)
		for path, text := range pagesOf(name) {
			for _, dark := range []bool{false, true} {
				if dark && world == "hostile" {
					continue // names change no colour
				}
				for _, v := range []browser.View{telephone, desktop} {
					v.Dark = dark
					p.Show(v)
					p.Open(at + path)
					what := fmt.Sprintf("%s %.40s, %d px, dark %v", world, path, v.Width, dark)
					if got := p.Text("document.body.innerText"); !strings.Contains(got, text) {
						t.Errorf("%s: the page lacks %q:\n%.3000s", what, text, got)
					}
					check(t, p, what)
					snap(p, world, path, "-", v.Width, map[bool]string{true: "-dark"}[dark])
				}
			}
		}
	}
}

// reading are the pages that show values of the daemon. They say if it does not answer any more.
var reading = map[string]bool{"/": true, "/paths": true, "/services": true, "/service?name=web": true, "/flows": true,
	"/events":  true,
	"/routers": true, "/certificates": true, "/cluster": true}

// emptyTexts are what pages show on a host with nothing.
var emptyTexts = map[string]string{"/": "Nothing that this page reads is wrong.", "/ports": "No port is in use.",
	"/paths": "There is no network", "/services": "There is no virtual service",
	"/service?name=web": "There is no service web.",
	"/events":           "There is no event", "/routers": "The daemon runs no gateway",
	"/certificates": "The daemon runs no gateway", "/cluster": "This host belongs to no cluster"}

// TestEmptyAndStalePages opens every page of a host with nothing, and of one whose daemon was killed while the pages
// were open: they keep what was read last, and say since when.
func TestEmptyAndStalePages(t *testing.T) {
	p := browser.Start(t, nil).Page(t, desktop)
	night := telephone
	night.Dark = true
	each := func(world, at string, which map[string]string, shows func(path string)) {
		for _, v := range []browser.View{desktop, night} {
			p.Show(v)
			for path := range which {
				p.Open(at + path)
				shows(path)
				check(t, p, fmt.Sprintf("%s %s, %d px", world, path, v.Width))
				snap(p, world, path, "-", v.Width)
			}
		}
	}
	nothing := show(t, dashboard.Options{Daemon: emptyDaemon(t), Host: room{}, Version: "test",
		Log: slog.New(slog.DiscardHandler)})
	all := pagesOf(plain)
	each("empty", nothing, all, func(path string) {
		p.Wait(`!document.querySelector("#state.waiting")`)
		if got := p.Text("document.body.innerText"); !strings.Contains(got, emptyTexts[path]) {
			t.Errorf("empty %s: the page lacks %q:\n%.3000s", path, emptyTexts[path], got)
		}
	})
	killed := &mortal{TB: t}
	at := serveHost(killed, newDaemon(t, plain), plain)
	maps.DeleteFunc(all, func(path, _ string) bool { return !reading[path] })
	for path := range all {
		p.Open(at + path)
		p.Wait(`document.querySelector("#state.live")`)
		go follow(t.Context(), at, path, nil) // a reader who leaves the page open
	}
	killed.kill()
	each("stale", at, all, func(path string) {
		p.Wait(`/^Stale since \d\d:\d\d:\d\d: the daemon does not answer/.test(
			document.querySelector("#state.stale")?.innerText)`)
		if got := p.Text("document.body.innerText"); !strings.Contains(got, all[path]) {
			t.Errorf("stale %s: the page lacks %q:\n%.3000s", path, all[path], got)
		}
	})
}

// TestPagesWithoutScripts reads every page with scripts disabled.
func TestPagesWithoutScripts(t *testing.T) {
	at := serveHost(t, newDaemon(t, plain), plain)
	v := desktop
	v.NoScript = true
	p := browser.Start(t, nil).Page(t, v)
	for path, text := range pagesOf(plain) {
		p.Open(at + path)
		if got := p.Text("document.body.innerText"); !strings.Contains(got, text) {
			t.Errorf("%s: the page lacks %q:\n%.3000s", path, text, got)
		}
		if n := p.Text(`document.querySelectorAll("nav a").length`); n == "0" {
			t.Errorf("%s has no links to other pages", path)
		}
	}
}
