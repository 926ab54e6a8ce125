package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
)

// View says how a page is shown.
type View struct {
	// Width and Height are in CSS pixels.
	Width, Height int
	Dark          bool
	// NoScript refuses the page's scripts.
	NoScript bool
}

// Page is a tab. Its methods wait for what they cause, and fail the test if that does not happen. They may not be
// called concurrently.
type Page struct {
	t             testing.TB
	link          *link
	session, tab  string
	context       string
	wake          chan struct{}
	mu            sync.Mutex
	loaded        map[string]bool // documents by their loader
	origin        string
	problems      []Problem
	axeIsInjected bool
}

// Page opens an empty page until the test ends.
func (b *Browser) Page(t testing.TB, v View) *Page {
	t.Helper()
	p := &Page{t: t, link: b.link, wake: make(chan struct{}, 1), loaded: map[string]bool{}}
	var made struct{ BrowserContextID, TargetID, SessionID string }
	p.call("Target.createBrowserContext", nil, &made)
	p.context = made.BrowserContextID
	p.call("Target.createTarget", object{"url": "about:blank", "browserContextId": p.context}, &made)
	p.tab = made.TargetID
	p.call("Target.attachToTarget", object{"targetId": p.tab, "flatten": true}, &made)
	b.link.follow(made.SessionID, p.event)
	p.session = made.SessionID
	t.Cleanup(func() { // the context of the test has ended, and its end must not wait for a browser that hangs
		_, _ = p.link.send(message{Method: "Target.disposeBrowserContext",
			Params: object{"browserContextId": p.context}})
	})
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Audits"} {
		p.call(domain+".enable", nil, nil)
	}
	p.call("Page.setLifecycleEventsEnabled", object{"enabled": true}, nil)
	p.call("Emulation.setFocusEmulationEnabled", object{"enabled": true}, nil)
	p.Show(v)
	return p
}

// object has the parameters of a command.
type object map[string]any

func (p *Page) call(method string, params object, result any) {
	p.t.Helper()
	if err := p.try(method, params, result); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Page) try(method string, params object, result any) error {
	ctx, cancel := limit(p.t)
	defer cancel()
	if params == nil {
		params = object{}
	}
	return p.link.call(ctx, p.session, method, params, result)
}

// Show changes how the page is shown.
func (p *Page) Show(v View) {
	p.t.Helper()
	p.call("Emulation.setDeviceMetricsOverride", object{"width": v.Width, "height": v.Height, "deviceScaleFactor": 1,
		"mobile": false}, nil)
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", object{"features": []object{{"name": "prefers-color-scheme",
		"value": scheme}}},
		nil)
	p.call("Emulation.setScriptExecutionDisabled", object{"value": v.NoScript}, nil)
}

// Cookie sets a cookie for the site of the address.
func (p *Page) Cookie(address, name, value string) {
	p.t.Helper()
	p.call("Network.setCookie", object{"url": address, "name": name, "value": value}, nil)
}

// Open opens the address, and waits until the page and all that it names are loaded. Requests to other origins than
// that of the address are problems from now on.
func (p *Page) Open(address string) {
	p.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.origin, p.axeIsInjected = u.Scheme+"://"+u.Host+"/", false
	p.mu.Unlock()
	var got struct{ LoaderID, ErrorText string }
	p.call("Page.navigate", object{"url": address}, &got)
	if got.ErrorText != "" {
		p.t.Fatalf("open %s: %s", address, got.ErrorText)
	}
	ctx, cancel := limit(p.t)
	defer cancel()
	for {
		p.mu.Lock()
		done := got.LoaderID == "" || p.loaded[got.LoaderID] // only the fragment of the address is new
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			p.t.Fatalf("open %s: it is not loaded: %v", address, ctx.Err())
		}
	}
}

// Value evaluates a JavaScript expression in the page, and decodes its value. It works without the page's scripts, too.
func (p *Page) Value(expression string, to any) {
	p.t.Helper()
	if err := p.evaluate(expression, to); err != nil {
		p.t.Fatal(err)
	}
}

// Text returns the value of an expression as text.
func (p *Page) Text(expression string) (text string) {
	p.t.Helper()
	p.Value("String("+expression+")", &text)
	return text
}

func (p *Page) evaluate(expression string, to any) error {
	var answer struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.try("Runtime.evaluate", object{"expression": expression, "awaitPromise": true, "returnByValue": true},
		&answer)
	if err != nil {
		return err
	}
	if e := answer.ExceptionDetails; e != nil {
		return fmt.Errorf("evaluate %.200s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if to == nil || len(answer.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(answer.Result.Value, to)
}

// Wait waits until a JavaScript expression is true. The page may load another document meanwhile: the expression is
// evaluated when that has a body. It needs a page with scripts.
func (p *Page) Wait(condition string) {
	p.t.Helper()
	ctx, cancel := limit(p.t)
	defer cancel()
	expression := `new Promise(done => { const look = () => document.body && (` + condition + `) ? done(true) :
		requestAnimationFrame(look)
		look() })`
	for {
		err := p.evaluate(expression, nil)
		if err == nil {
			return
		}
		if ctx.Err() == nil && replaced(err) {
			continue
		}
		var text string
		_ = p.evaluate("document.body.innerText", &text)
		p.t.Fatalf("wait for %s: %v; the page shows:\n%s", condition, err, text)
	}
}

// replaced reports whether an evaluation failed because another document was loaded meanwhile.
func replaced(err error) bool {
	return strings.Contains(err.Error(), "context") || strings.Contains(err.Error(), "navigated")
}

// keys have the code of a key by its name.
var keys = map[string]struct {
	code int
	text string
}{"Tab": {9, ""}, "Enter": {13, "\r"}, "Escape": {27, ""}, " ": {32, " "}, "ArrowDown": {40, ""}}

// Press presses a key and releases it.
func (p *Page) Press(key string) {
	p.t.Helper()
	k, known := keys[key]
	if !known {
		p.t.Fatalf("the key %q is not known to package browser", key)
	}
	event := object{"type": "keyDown", "key": key, "windowsVirtualKeyCode": k.code, "text": k.text}
	p.call("Input.dispatchKeyEvent", event, nil)
	event["type"], event["text"] = "keyUp", ""
	p.call("Input.dispatchKeyEvent", event, nil)
}

// Type enters a text where the focus is.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.call("Input.insertText", object{"text": text}, nil)
}

// Screenshot writes a picture of the whole page, as PNG.
func (p *Page) Screenshot(path string) {
	p.t.Helper()
	var size struct {
		CSSContentSize struct{ Width, Height float64 }
	}
	p.call("Page.getLayoutMetrics", nil, &size)
	var shot struct{ Data []byte }
	whole := object{"x": 0, "y": 0, "width": size.CSSContentSize.Width, "height": size.CSSContentSize.Height,
		"scale": 1}
	p.call("Page.captureScreenshot", object{"format": "png", "captureBeyondViewport": true, "clip": whole}, &shot)
	if err := os.WriteFile(path, shot.Data, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// Overflow returns how many pixels the document is wider than the window.
func (p *Page) Overflow() (pixels int) {
	p.t.Helper()
	p.Value("document.documentElement.scrollWidth - document.documentElement.clientWidth", &pixels)
	return pixels
}
