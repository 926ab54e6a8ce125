package browser

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// policy is the one under which the pages of the tests run.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"

// good is a page that breaks no rule.
const good = `<!doctype html><html lang="en"><head><title>Good</title></head><body><main><h1>Good</h1>%s</main></body></html>`

// site serves pages by their paths, under the policy unless the path begins with /free.
func site(t *testing.T, pages map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/free") {
			w.Header().Set("Content-Security-Policy", policy)
		}
		w.Header().Set("Content-Type", "text/html")
		if strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript")
		}
		if c, err := r.Cookie("name"); err == nil {
			text = strings.ReplaceAll(text, "COOKIE", c.Value)
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestEachCheckCanFail opens pages that each break one rule, and one that breaks none.
func TestEachCheckCanFail(t *testing.T) {
	other := site(t, map[string]string{"/picture": ""})
	at := site(t, map[string]string{
		"/good":         fmt.Sprintf(good, "<p>Text</p>"),
		"/image":        fmt.Sprintf(good, `<img src="/dot.js">`),
		"/contrast":     `<!doctype html><html lang="en"><head><title>x</title><body><main><h1>x</h1><p><font color="#ddd">pale`,
		"/log":          fmt.Sprintf(good, `<script src="/log.js"></script>`),
		"/log.js":       `console.error("wrong", 7)`,
		"/dot.js":       "",
		"/throw":        fmt.Sprintf(good, `<script src="/throw.js"></script>`),
		"/throw.js":     `undefined.x`,
		"/absent":       fmt.Sprintf(good, `<script src="/none.js"></script>`),
		"/style":        fmt.Sprintf(good, `<p style="color: red">Text</p>`),
		"/inline":       fmt.Sprintf(good, `<script>1</script>`),
		"/fetch":        fmt.Sprintf(good, `<script src="/fetch.js"></script>`),
		"/free-fetch":   fmt.Sprintf(good, `<script src="/fetch.js"></script>`),
		"/fetch.js":     `fetch("` + other + `/picture").catch(() => {})`,
		"/free-socket":  fmt.Sprintf(good, `<script src="/socket.js"></script>`),
		"/socket.js":    `new WebSocket("` + strings.Replace(other, "http", "ws", 1) + `/picture")`,
		"/free-picture": fmt.Sprintf(good, `<img alt="" src="`+other+`/picture">`),
		"/link":         fmt.Sprintf(good, `<a id="away" href="`+other+`/picture">away</a>`),
	})
	b := Start(t, nil)
	for _, c := range []struct {
		path string
		// kinds are those of the problems, rules those of axe-core.
		kinds, rules []string
	}{
		{"/good", nil, nil},
		{"/image", nil, []string{"image-alt"}},
		{"/contrast", nil, []string{"color-contrast"}},
		{"/log", []string{Console}, nil},
		{"/throw", []string{Console}, nil},
		{"/absent", []string{Console}, nil},
		{"/style", []string{Console, Policy}, nil},
		{"/inline", []string{Console, Policy}, nil},
		{"/fetch", []string{Console, Policy}, nil},
		{"/free-fetch", []string{Foreign}, nil}, // the console reports the failure of these two later
		{"/free-socket", []string{Foreign}, nil},
		{"/free-picture", []string{Foreign}, nil},
	} {
		p := b.Page(t, View{Width: 800, Height: 600})
		p.Open(at + c.path)
		var kinds, rules []string
		found, broken := p.Problems(), p.Violations()
		for _, f := range found {
			if f.Kind != Console || slices.Contains(c.kinds, Console) || c.kinds == nil {
				kinds = append(kinds, f.Kind)
			}
		}
		for _, v := range broken {
			rules = append(rules, v.Rule)
		}
		slices.Sort(kinds)
		if kinds = slices.Compact(kinds); !slices.Equal(kinds, c.kinds) || !slices.Equal(rules, c.rules) {
			t.Errorf("%s: %v and %v, want %v and %v", c.path, found, broken, c.kinds, c.rules)
		}
	}
	p := b.Page(t, View{Width: 800, Height: 600})
	p.Open(at + "/link")
	p.Value(`document.querySelector("#away").click()`, nil)
	p.Wait(`location.origin == "` + other + `"`)
	if found := p.Problems(); len(found) == 0 || found[0] != (Problem{Foreign, other + "/picture"}) {
		t.Errorf("a link to another origin: %v", found)
	}
}

// TestPageIsShownAsWanted: width, colours, scripts, cookies, keys and pictures.
func TestPageIsShownAsWanted(t *testing.T) {
	at := site(t, map[string]string{
		"/": fmt.Sprintf(good,
			`<p id="text">COOKIE</p><button id="b">b</button><input id="i" aria-label="i"><script src="/js.js"></script>`),
		"/wide":  fmt.Sprintf(good, "<p>"+strings.Repeat("x", 200)),
		"/js.js": `document.querySelector("#text").title = "scripts run"; b.onclick = () => setTimeout(() => b.textContent = "pressed")`,
	})
	b := Start(t, nil)
	p := b.Page(t, View{Width: 360, Height: 500, Dark: true})
	p.Cookie(at, "name", "biscuit")
	p.Open(at + "/")
	if got := p.Text(`[innerWidth, innerHeight, matchMedia("(prefers-color-scheme: dark)").matches, ` +
		`document.querySelector("#text").textContent, document.querySelector("#text").title]`); got !=
		"360,500,true,biscuit,scripts run" {
		t.Error(got)
	}
	p.Press("Tab")
	p.Press("Enter")
	p.Wait(`b.textContent == "pressed"`)
	p.Press("Tab")
	p.Type("typed")
	if got := p.Text("i.value"); got != "typed" {
		t.Error(got)
	}
	if p.Overflow() != 0 {
		t.Errorf("the page is %d pixels wider than the window", p.Overflow())
	}
	p.Show(View{Width: 360, Height: 500, NoScript: true})
	p.Open(at + "/")
	if got := p.Text(`[matchMedia("(prefers-color-scheme: dark)").matches, document.querySelector("#text").title]`); got !=
		"false," {
		t.Error(got)
	}
	p.Open(at + "/wide")
	if p.Overflow() < 500 {
		t.Errorf("the wide page is %d pixels wider than the window", p.Overflow())
	}
	file := filepath.Join(t.TempDir(), "page.png")
	p.Screenshot(file)
	if text, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(text), "\x89PNG") {
		t.Errorf("%.8q, %v", text, err)
	}
	if other := b.Page(t, View{Width: 360, Height: 500}); true {
		other.Open(at + "/")
		if got := other.Text(`document.querySelector("#text").textContent`); got != "COOKIE" {
			t.Errorf("another page has the cookie %s", got)
		}
	}
}

// TestAxeIsAsPublished compares axe-core with the checksum of the published file.
func TestAxeIsAsPublished(t *testing.T) {
	if sum := sha256.Sum256([]byte(axeSource)); hex.EncodeToString(sum[:]) != AxeChecksum {
		t.Errorf("axe.min.js has the checksum %x", sum)
	}
}
