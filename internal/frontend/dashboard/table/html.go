package table

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/escape"
	"fairlead/internal/wording"
)

// The lengths of texts in bytes.
const (
	// wideText makes a column wider.
	wideText = 30
	// longWord may be broken anywhere.
	longWord = 40
	// cutText scrolls inside its cell.
	cutText = 400
)

// Text returns a text as HTML: escaped, and with visible control and direction characters, as the command line shows
// them.
func Text(s string) string { return template.HTMLEscapeString(escape.Line(s)) }

// HTML returns the table with its filter and the links to its pages.
func (v View) HTML() template.HTML {
	var b strings.Builder
	v.filter(&b)
	b.WriteString(`<div class="scroll" tabindex="0" role="group" aria-label="` + Text(v.Caption) + `"><table>`)
	fmt.Fprintf(&b, "<caption>%s: %s</caption><thead><tr>", Text(v.Caption), v.count())
	for _, c := range v.Columns {
		v.head(&b, c)
	}
	b.WriteString("</tr></thead><tbody>")
	for _, r := range v.Rows {
		v.row(&b, r)
	}
	if len(v.Rows) == 0 {
		empty := v.Empty
		if v.N > 0 {
			empty = "No row matches the filter."
		}
		fmt.Fprintf(&b, `<tr><td colspan="%d">%s</td></tr>`, len(v.Columns), Text(empty))
	}
	b.WriteString("</tbody></table></div>")
	v.pages(&b)
	return template.HTML(b.String())
}

// count says how many rows there are.
func (v View) count() string {
	if v.Matching == v.N {
		return strconv.Itoa(v.N)
	}
	return fmt.Sprintf("%d of %d", v.Matching, v.N)
}

// filter writes the form with the filter, if there is a row. It keeps the other parameters of the page.
func (v View) filter(b *strings.Builder) {
	if v.Small || v.N == 0 {
		return
	}
	fmt.Fprintf(b, `<form class="filter" role="search" aria-label="Filter: %s" method="get" action="%s">`,
		Text(v.Caption),
		Text(v.path))
	for _, name := range slices.Sorted(maps.Keys(v.values)) {
		if name != v.name("q") && name != v.name("page") {
			for _, value := range v.values[name] {
				hidden(b, name, value)
			}
		}
	}
	fmt.Fprintf(b, `<label>Filter: words, or column:word<input type="search" id="%s" name="%s" value="%s" `+
		`maxlength="%d" size="30"></label><button>Filter</button></form>`, Text(v.name("filter")), Text(v.name("q")),
		Text(v.Query.Filter), maxQuery)
}

// head writes the title of a column, which is a link that sorts by it.
func (v View) head(b *strings.Builder, c Column) {
	next, sorted, mark := c.Key, "none", ""
	switch v.Query.Sort {
	case c.Key:
		next, sorted, mark = "-"+c.Key, "ascending", " ↑"
	case "-" + c.Key:
		next, sorted, mark = "", "descending", " ↓"
	}
	kind := ""
	if c.Numeric {
		kind = ` class="num"`
	}
	if v.N < 2 {
		fmt.Fprintf(b, `<th scope="col"%s>%s</th>`, kind, Text(c.Title))
		return
	}
	fmt.Fprintf(b, `<th scope="col" aria-sort="%s"%s><a href="%s">%s%s</a></th>`, sorted, kind,
		Text(v.url(map[string]string{"sort": next, "page": ""})), Text(c.Title), mark)
}

// row writes a row. Its first cell is its header.
func (v View) row(b *strings.Builder, r Row) {
	fmt.Fprintf(b, `<tr id="%s">`, Text(r.ID))
	for i, c := range r.Cells {
		tag, class := "td", ""
		if i == 0 {
			tag = `th scope="row"`
		}
		switch {
		case v.Columns[i].Numeric:
			class = ` class="num"`
		case len(c.Text) > wideText:
			class = ` class="wide"`
		}
		b.WriteString("<" + tag + class + ">")
		c.write(b)
		b.WriteString("</" + tag[:2] + ">")
	}
	b.WriteString("</tr>")
}

// write writes what is in a cell.
func (c Cell) write(b *strings.Builder) {
	text := Text(c.Text)
	switch {
	case !c.Time.IsZero():
		text = Age(c.Time)
	case !c.Until.IsZero():
		text = left(c.Until)
	case c.Link != "":
		text = `<a href="` + Text(c.Link) + `">` + text + "</a>"
	}
	switch {
	case len(c.Text) > cutText:
		class := strings.TrimSpace("cut " + string(c.State))
		text = `<span class="` + class + `" tabindex="0" role="group" aria-label="Long text">` + text + "</span>"
	case c.State != "":
		text = `<span class="` + string(c.State) + `">` + text + "</span>"
	case slices.ContainsFunc(strings.Fields(c.Text), func(word string) bool { return len(word) > longWord }):
		text = `<span class="long">` + text + "</span>"
	}
	b.WriteString(text)
	for _, f := range c.Forms {
		f.write(b)
	}
}

// Age returns a time as its age, with the time itself as a tooltip and for programs.
func Age(t time.Time) string {
	return fmt.Sprintf(`<time datetime="%s" title="%s" data-age>%s</time>`, t.UTC().Format(time.RFC3339),
		t.Local().Format(time.DateTime), wording.Age(t))
}

// left returns what is left until a time. The script counts it down.
func left(t time.Time) string {
	return fmt.Sprintf(`<time datetime="%s" title="%s" data-left data-age>%s</time>`, t.UTC().Format(time.RFC3339),
		t.Local().Format(time.DateTime), max(0, time.Until(t)).Round(time.Second))
}

func (f Form) write(b *strings.Builder) {
	fmt.Fprintf(b, ` <form class="row" method="post" action="%s">`, Text(f.Action))
	for _, field := range f.Fields {
		hidden(b, field[0], field[1])
	}
	fmt.Fprintf(b, `<button aria-label="%s">%s</button></form>`, Text(f.Label), Text(f.Button))
}

// hidden writes a field that is not shown. Its value is not changed.
func hidden(b *strings.Builder, name, value string) {
	fmt.Fprintf(b, `<input type="hidden" name="%s" value="%s">`, template.HTMLEscapeString(name),
		template.HTMLEscapeString(value))
}

// pages writes the links to the other pages.
func (v View) pages(b *strings.Builder) {
	if v.Pages == 1 {
		return
	}
	link := func(n int, text string) {
		if n < 1 || n > v.Pages || n == v.Query.Page {
			return
		}
		page := strconv.Itoa(n)
		if n == 1 {
			page = ""
		}
		fmt.Fprintf(b, `<a href="%s">%s</a>`, Text(v.url(map[string]string{"page": page})), text)
	}
	b.WriteString(`<nav class="pages" aria-label="Pages of the table">`)
	link(1, "First")
	link(v.Query.Page-1, "Previous")
	fmt.Fprintf(b, "<span>Page %d of %d</span>", v.Query.Page, v.Pages)
	link(v.Query.Page+1, "Next")
	link(v.Pages, "Last")
	b.WriteString("</nav>")
}

// ReadAge is Age for the time at which a page was read. The script changes it without a new page.
func ReadAge(t time.Time) string { return strings.Replace(Age(t), "<time", `<time id="read"`, 1) }
