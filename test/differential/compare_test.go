package differential_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// difference is one between the two gateways.
type difference struct {
	Batch string
	// Request is nil for differences of /api/rawdata.
	Request *request
	// Where is what differs, such as "status", "header Vary", "server header Te", or the path in the
	// answer of /api/rawdata.
	Where         string
	Traefik, Here string
	// both are the whole responses, batch is what was played.
	both  [2]response
	batch *batch
}

func (d difference) String() string {
	text := fmt.Sprintf("%s: %s: Traefik %.300s, here %.300s", d.Batch, d.Where, d.Traefik, d.Here)
	if q := d.Request; q != nil {
		text += fmt.Sprintf("\n\trequest %s: %s %s, Host %s, %q, body %q", q.Name, q.Method, q.Target, q.Host,
			q.Header, q.Body)
	}
	return text
}

// compare returns the differences between the outcomes of a batch.
func compare(b *batch, traefik, here outcome) (all []difference) {
	for i := range b.Requests {
		q := &b.Requests[i]
		both := [2]response{traefik.Responses[q.Name], here.Responses[q.Name]}
		a, o := both[0].facts(), both[1].facts()
		for _, where := range keysOf(a, o) {
			if a[where] != o[where] {
				all = append(all, difference{b.Name, q, where, a[where], o[where], both, b})
			}
		}
	}
	a, o := map[string]string{}, map[string]string{}
	flatten(a, "", traefik.Raw)
	flatten(o, "", here.Raw)
	for _, where := range keysOf(a, o) {
		if a[where] != o[where] {
			all = append(all, difference{Batch: b.Name, Where: "raw " + where, Traefik: a[where], Here: o[where],
				batch: b})
		}
	}
	return all
}

func keysOf(a, b map[string]string) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// flatten adds the leaves of a JSON value under their paths. An empty object or list is none.
func flatten(to map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			flatten(to, path+"/"+key, child)
		}
	case []any:
		text, _ := json.Marshal(v)
		if len(v) > 0 {
			to[path] = string(text)
		}
	case nil:
	default:
		to[path] = fmt.Sprint(v)
	}
}

// changing are parts of headers that differ each time.
var changing = regexp.MustCompile(`(nonce|opaque)="[^"]*"`)

// facts returns what is compared of a response.
func (r response) facts() map[string]string {
	all := map[string]string{"status": fmt.Sprint(r.Status), "failed": fmt.Sprint(r.Failed)}
	for name, values := range r.Header {
		all["header "+name] = r.plain(name, values)
	}
	all["body"] = r.Body
	if encoding := r.Header["Content-Encoding"]; encoding != nil {
		delete(all, "header Content-Length")
		all["body"] = decoded(encoding[0], r.Body)
	}
	for _, s := range r.Received {
		at := "server"
		if s.At == "auth" {
			at = "auth"
		}
		all[at+" request"] += s.Method + " " + s.Target + " "
		all[at+" host"] += strings.NewReplacer("127.0.0.1:9002", "127.0.0.1:9001").Replace(s.Host) + " "
		all[at+" body"] += s.Body + " "
		for name, values := range s.Header {
			all[at+" header "+name] += strings.Join(values, "|") + " "
		}
	}
	return all
}

// plain returns the values of a header without what differs each time.
func (r response) plain(name string, values []string) string {
	text := strings.Join(values, "|")
	switch name {
	case "Www-Authenticate":
		return changing.ReplaceAllString(text, "$1=X")
	case "Vary":
		return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", |", r) }),
			"|")
	case "Retry-After", "X-Retry-In":
		return "a time"
	case "Set-Cookie":
		return r.withoutServers(text)
	}
	return text
}

// withoutServers replaces the name of the server that has answered in a cookie.
func (r response) withoutServers(text string) string {
	for _, s := range r.Received {
		at := map[string][2]string{"s1": {"http://127.0.0.1:9001", "one"}, "s2": {"http://127.0.0.1:9002",
			"other"}}[s.At]
		for _, name := range at {
			sum := sha256.Sum256([]byte(name))
			text = strings.ReplaceAll(text, "="+hex.EncodeToString(sum[:8]), "=SERVER")
		}
	}
	return text
}

func decoded(encoding, body string) string {
	if encoding != "gzip" {
		return "encoded"
	}
	in, err := gzip.NewReader(bytes.NewReader([]byte(body)))
	if err != nil {
		return body
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
