// Package page has the pages of the dashboard, one per file: each reads values of the daemon's API and of the
// examination of this host, and says in the words of the command line what is wrong, since when, and why. It writes
// HTML that is complete without a script.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/url"
	"sync"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/frontend/dashboard/asset"
	"fairlead/internal/frontend/dashboard/source"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/plan"
)

//go:embed layout.html
var files embed.FS

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").ParseFS(files, "*.html"))
})

// Host examines the host. examine.Examiner implements it.
type Host interface {
	Host(ctx context.Context) (doctor.Host, error)
	Flow(ctx context.Context, f flow.Flow, send *probe.Options) (flow.Explanation, error)
	// Kernel returns what this kernel has.
	Kernel(ctx context.Context) (plan.Facts, error)
}

// Chart is a figure over the last hour.
type Chart struct {
	// ID has letters, digits and dashes, and is unique on a page.
	ID, Title, Unit string
	// Note is a sentence below the chart; it can be empty.
	Note string
	// SVG is a complete element without a style attribute.
	SVG template.HTML
	// Table has the same figures.
	Table table.View
}

// Charts returns the charts of a page: "now", "services", "flows" or "routers". It reads memory only.
type Charts func(page string) []Chart

// Site is what all pages share.
type Site struct {
	// Base is the path prefix of all links, without a slash at its end.
	Base string
	// Name is that of this host, and Version that of Fairlead.
	Name, Version string
	// Actions says that the pages have buttons that change something.
	Actions bool
	Sources *source.Set
	// Gateway reads a path of the gateway's API; nil if there is none.
	Gateway func(ctx context.Context, path string, into any) error
	// Host examines the host; nil if nothing can.
	Host Host
	// Charts can be nil.
	Charts Charts
	// Token is a secret of this process that forms of actions contain.
	Token string
	// Explains limits the explanations that run at the same time.
	Explains chan struct{}
}

// Page is one page.
type Page struct {
	// Path is the page's name in URLs; empty for the first page.
	Path, Title string
	// Question is what the page answers.
	Question string
	// command returns the command that shows the same.
	command func(url.Values) string
	// needs reports whether the site has what the page reads.
	needs func(*Site) bool
	view  func(*Visit) []Section
	// hidden pages are not in the navigation.
	hidden bool
	// still pages are not kept up to date: what they show was asked for.
	still bool
}

// pages are all pages in the order of the navigation.
func pages() []Page {
	return []Page{now(), portsPage(), pathsPage(), services(), service(), explain(), flows(), events(), lab(),
		routers(),
		certificates(), cluster()}
}

// Find returns the page of a path of URLs below the base, and false if the site has no such page.
func (s *Site) Find(path string) (Page, bool) {
	for _, p := range pages() {
		if "/"+p.Path == path && p.needs(s) {
			return p, true
		}
	}
	return Page{}, false
}

// link returns the URL of a page with parameters: pairs of names and values.
func (s *Site) link(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	at := s.Base + "/" + path
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	return at
}

// Section is a part of a page.
type Section struct {
	ID, Title, Note string
	// Command shows the same as the section, or does what its buttons would do.
	Command string
	Ask     *Ask
	Items   []Item
	Picture template.HTML
	Hops    []Hop
	Lines   []string
	Table   *table.View
	Charts  []Chart
}

// Ask is a form that asks a question.
type Ask struct {
	Action, Button string
	Fields         []Field
}

// Field is a field of a form.
type Field struct {
	Label, Name, Value, Example string
	Size                        int
}

// Item is something that is wrong, or has changed.
type Item struct {
	State table.State
	// Mark says the state in a word.
	Mark string
	// What names the object, and Link is the URL of its page.
	What, Link string
	Text       string
	Since      time.Time
	Fix        string
}

// Age returns for how long as HTML.
func (i Item) Age() template.HTML {
	if i.Since.IsZero() {
		return ""
	}
	return template.HTML(table.Age(i.Since))
}

// Hop is a step of an explanation.
type Hop struct {
	Where, What string
	More        []string
}

// Rendered is a page as HTML.
type Rendered struct {
	// Main is what is inside the element main.
	Main template.HTML
	// Etag identifies what Main shows, except the time of reading and the text of ages.
	Etag string
	// Read is when the oldest value on the page was read.
	Read time.Time
	// Version is that of the values on the page. Newest returns the version of the newest values and when the oldest of
	// them was read, and reads them again if it is time for that.
	Version uint64
	Newest  func() (version uint64, read time.Time)
	// Live says that the page changes by itself.
	Live bool
}

// Render shows a page to a reader who has asked with a query.
func (s *Site) Render(ctx context.Context, p Page, query url.Values) (r Rendered, err error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v := &Visit{Site: s, Context: ctx, Query: query, page: p, now: time.Now(), patient: patient}
	sections := p.view(v)
	if s.Charts != nil {
		if charts := s.Charts(p.chartsName()); len(charts) > 0 {
			sections = append(sections, Section{ID: "charts", Title: "The last hour", Charts: charts})
		}
	}
	escapeTexts(sections)
	top := struct {
		Title, Question, Command, State, StateClass string
		Unread                                      []string
	}{Title: p.Title, Question: p.Question, Command: escape.Line(p.command(query)), Unread: v.unread}
	top.State, top.StateClass = v.state()
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "top", top); err != nil {
		return r, fmt.Errorf("write page %s: %w", p.Title, err)
	}
	head := b.Len()
	if err := templates().ExecuteTemplate(&b, "body", struct{ Sections []Section }{sections}); err != nil {
		return r, fmt.Errorf("write page %s: %w", p.Title, err)
	}
	r.Etag = etag(b.Bytes())
	r.Read, r.Live = v.oldest, !p.still
	r.Main = template.HTML(b.String()[:head]) + v.read() + template.HTML(b.String()[head:])
	r.Version, r.Newest = v.version, v.newest()
	return r, nil
}

// etag returns a hash of the HTML of a page without the texts of ages.
func etag(html []byte) string {
	sum := sha256.New()
	for age := false; len(html) > 0; age = true {
		if age {
			html = html[max(0, bytes.IndexByte(html, '<')):]
		}
		before, after, _ := bytes.Cut(html, []byte("data-age>"))
		_, _ = sum.Write(before) // a hash does not fail
		html = after
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// chartsName returns the name of the page for Charts.
func (p Page) chartsName() string {
	if p.Path == "" {
		return "now"
	}
	return p.Path
}

// escapeTexts makes hidden characters visible in texts that templates write. Tables do that themselves.
func escapeTexts(all []Section) {
	for i := range all {
		s := &all[i]
		for j := range s.Items {
			item := &s.Items[j]
			item.What, item.Text, item.Fix = escape.Line(item.What), escape.Line(item.Text), escape.Line(item.Fix)
			item.Mark = escape.Line(item.Mark)
		}
		for j := range s.Hops {
			h := &s.Hops[j]
			h.Where, h.What = escape.Line(h.Where), escape.Line(h.What)
			for k := range h.More {
				h.More[k] = escape.Line(h.More[k])
			}
		}
		for j := range s.Lines {
			s.Lines[j] = escape.Line(s.Lines[j])
		}
		s.Title, s.Note, s.Command = escape.Line(s.Title), escape.Line(s.Note), escape.Line(s.Command)
	}
}

// Whole returns the complete document of a rendered page.
func (s *Site) Whole(p Page, r Rendered) ([]byte, error) {
	type entry struct {
		Title, URL string
		Current    bool
	}
	data := struct {
		assets
		Base, Host, Title, Version, Etag string
		Actions, Live                    bool
		Nav                              []entry
		Main                             template.HTML
	}{assets: assets{s.Base}, Base: s.Base, Host: escape.Line(s.Name), Title: p.Title, Version: s.Version, Etag: r.Etag,
		Actions: s.Actions, Live: r.Live, Main: r.Main}
	for _, one := range pages() {
		if !one.hidden && one.needs(s) {
			data.Nav = append(data.Nav, entry{one.Title, s.link(one.Path), one.Path == p.Path})
		}
	}
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, "layout", data); err != nil {
		return nil, fmt.Errorf("write page %s: %w", p.Title, err)
	}
	return b.Bytes(), nil
}

// assets returns the URLs of files.
type assets struct{ base string }

// Asset returns the URL of a file of package asset.
func (a assets) Asset(name string) string { return a.base + "/asset/" + asset.Load().Name(name) }

// hasDaemon, hasGateway and always are what pages need.
func hasDaemon(s *Site) bool  { return s.Sources.Services != nil }
func hasGateway(s *Site) bool { return s.Sources.Gateway != nil }
func hasHost(s *Site) bool    { return s.Sources.Host != nil }
func always(*Site) bool       { return true }

// fixed returns a command that does not depend on the query.
func fixed(command string) func(url.Values) string { return func(url.Values) string { return command } }
