package browser

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The kinds of problem that Chromium reports.
const (
	// Console is an error or a warning on the console, or an exception.
	Console = "console"
	// Policy is a report of the content security policy.
	Policy = "policy"
	// Foreign is a request to another origin.
	Foreign = "foreign request"
)

// Problem is what is wrong with a page.
type Problem struct{ Kind, Text string }

func (p Problem) String() string { return p.Kind + ": " + p.Text }

// Problems returns what Chromium has reported since the page was made, or since the last call.
func (p *Page) Problems() []Problem {
	p.t.Helper()
	p.Value("0", nil) // events of the page that have happened come before the answer
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.problems
	p.problems = nil
	return found
}

// event notes what Chromium reports of the page.
func (p *Page) event(method string, params json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch method {
	case "Page.lifecycleEvent":
		var e struct{ Name, LoaderID string }
		if json.Unmarshal(params, &e) == nil && e.Name == "load" {
			p.loaded[e.LoaderID] = true
			select {
			case p.wake <- struct{}{}:
			default:
			}
		}
	case "Runtime.consoleAPICalled":
		p.console(params)
	case "Runtime.exceptionThrown":
		var e struct {
			ExceptionDetails struct {
				Text      string
				Exception struct{ Description string }
			}
		}
		_ = json.Unmarshal(params, &e)
		p.note(Console, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		var e struct {
			Entry struct{ Level, Text, URL string }
		}
		_ = json.Unmarshal(params, &e)
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			p.note(Console, strings.TrimSpace(e.Entry.Text+" "+e.Entry.URL))
		}
	case "Audits.issueAdded":
		p.issue(params)
	case "Network.requestWillBeSent":
		var e struct{ Request struct{ URL string } }
		_ = json.Unmarshal(params, &e)
		p.request(e.Request.URL)
	case "Network.webSocketCreated":
		var e struct{ URL string }
		_ = json.Unmarshal(params, &e)
		p.request("http" + strings.TrimPrefix(e.URL, "ws"))
	}
}

func (p *Page) note(kind, text string) { p.problems = append(p.problems, Problem{kind, text}) }

func (p *Page) console(params json.RawMessage) {
	var e struct {
		Type string
		Args []struct {
			Value       any
			Description string
		}
	}
	_ = json.Unmarshal(params, &e)
	if e.Type != "error" && e.Type != "warning" && e.Type != "assert" {
		return
	}
	var words []string
	for _, a := range e.Args {
		if a.Description == "" && a.Value != nil {
			a.Description = fmt.Sprint(a.Value)
		}
		words = append(words, a.Description)
	}
	p.note(Console, strings.Join(words, " "))
}

// issue notes a report of the content security policy. Chromium has issues of other kinds, which console messages
// accompany if they are errors.
func (p *Page) issue(params json.RawMessage) {
	var e struct {
		Issue struct {
			Details struct {
				ContentSecurityPolicyIssueDetails *struct{ ViolatedDirective, BlockedURL string }
			}
		}
	}
	_ = json.Unmarshal(params, &e)
	if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
		p.note(Policy, strings.TrimSpace(d.ViolatedDirective+" "+d.BlockedURL))
	}
}

// request notes a request to another origin. A data URL is none, and the policy decides about it.
func (p *Page) request(address string) {
	if p.origin != "" && !strings.HasPrefix(address, p.origin) && !strings.HasPrefix(address, "data:") {
		p.note(Foreign, address)
	}
}
