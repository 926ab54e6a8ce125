package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"fairlead/internal/gateway/middleware/base"
	"fairlead/internal/model/gateway"
)

// statusClientClosed is nginx's status for a client that has closed the connection.
const statusClientClosed = 499

// forwardAuth asks another server about each request.
type forwardAuth struct {
	*gateway.ForwardAuth
	responseHeaders *regexp.Regexp
	client          http.Client
}

// NewForwardAuth sends the head of each request to another server. A 2xx response accepts
// the request; any other one is the client's response. Headers that the other server sets
// replace the client's, under aliases also.
func NewForwardAuth(b *base.Builder, v *gateway.ForwardAuth) (base.Func, error) {
	address, err := url.Parse(v.Address)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("read address %q: want http://HOST[:PORT]/PATH", gateway.ShownURL(v.Address))
	}
	b.Depends = v.TLS != nil // it may name files
	f := &forwardAuth{ForwardAuth: v}
	if v.AuthResponseHeadersRegex != "" {
		if f.responseHeaders, err = base.CompileRegex(v.AuthResponseHeadersRegex); err != nil {
			return nil, fmt.Errorf("read authResponseHeadersRegex: %w", err)
		}
	}
	f.client = http.Client{Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if f.client.Transport, err = clientTransport(v.TLS); err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(w, r, next) })
	}, nil
}

func (f *forwardAuth) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	question, status := f.question(r)
	if question == nil {
		base.Refuse(w, status)
		return
	}
	answer, err := f.client.Do(question)
	switch {
	case err != nil && errors.Is(r.Context().Err(), context.Canceled):
		base.Refuse(w, statusClientClosed)
		return
	case err != nil:
		base.Refuse(w, http.StatusInternalServerError)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		f.reject(w, answer)
		return
	}
	// A short rest is read, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, answer.Body, 4096)
	f.take(r.Header, answer.Header)
	if f.HeaderField != "" {
		if user := answer.Header.Get(f.HeaderField); user != "" {
			accept(r, user, "", false)
		}
	}
	cookies := f.cookies(answer)
	if len(cookies) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	out := &base.HeadWriter{ResponseWriter: w, Before: func(int) { f.setCookies(w.Header(), cookies) }}
	next.ServeHTTP(out, r)
	out.Finish()
}

// question returns the request to the other server, or nil and a status.
func (f *forwardAuth) question(r *http.Request) (*http.Request, int) {
	method := http.MethodGet
	if f.PreserveRequestMethod {
		method = r.Method
	}
	var body io.Reader
	if f.ForwardBody && r.ContentLength != 0 {
		text, err := readLimited(r.Body, f.MaxBodySize)
		switch {
		case errors.Is(err, base.ErrTooLarge):
			return nil, http.StatusUnauthorized
		case err != nil:
			return nil, http.StatusBadRequest
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		body = bytes.NewReader(text)
	}
	question, err := http.NewRequestWithContext(r.Context(), method, f.Address, body)
	if err != nil {
		return nil, http.StatusInternalServerError
	}
	question.Header = questionHeader(r, f.TrustForwardHeader, f.AuthRequestHeaders)
	return question, 0
}

// readLimited reads a body to its end. Nil, or a negative limit, means no limit.
func readLimited(body io.Reader, limit *int64) ([]byte, error) {
	if limit == nil || *limit < 0 {
		return io.ReadAll(body)
	}
	text, err := io.ReadAll(io.LimitReader(body, *limit+1))
	if err == nil && int64(len(text)) > *limit {
		return nil, base.ErrTooLarge
	}
	return text, err
}

// reject sends the other server's response to the client.
func (f *forwardAuth) reject(w http.ResponseWriter, answer *http.Response) {
	if answer.StatusCode == http.StatusUnauthorized && f.AuthSigninURL != "" {
		base.RedirectWith(w, f.AuthSigninURL, http.StatusFound)
		return
	}
	var body io.Reader = answer.Body
	if f.MaxResponseBodySize != nil {
		text, err := readLimited(answer.Body, f.MaxResponseBodySize)
		switch {
		case errors.Is(err, base.ErrTooLarge):
			base.Refuse(w, http.StatusUnauthorized)
			return
		case err != nil:
			base.Refuse(w, http.StatusInternalServerError)
			return
		}
		body = bytes.NewReader(text)
	}
	base.RemoveHopHeaders(answer.Header)
	maps.Copy(w.Header(), answer.Header)
	if !f.PreserveLocationHeader {
		if location, err := answer.Location(); err == nil {
			w.Header().Set("Location", location.String())
		}
	}
	w.WriteHeader(answer.StatusCode)
	if _, err := base.CopyTo(w, body); err != nil {
		panic(http.ErrAbortHandler) // The client must see that the body is cut.
	}
}

// take replaces the configured headers of a request by those of the other server. The
// client's are deleted even if the other server sends none.
func (f *forwardAuth) take(request, answer http.Header) {
	for _, name := range f.AuthResponseHeaders {
		request.Del(name)
		base.Protect(request, name)
		for _, value := range answer.Values(name) {
			request.Add(name, value)
		}
	}
	if f.responseHeaders == nil {
		return
	}
	for name := range request {
		if f.responseHeaders.MatchString(name) ||
			f.responseHeaders.MatchString(http.CanonicalHeaderKey(fromCGI.Replace(name))) {
			delete(request, name)
		}
	}
	for name, values := range answer {
		if f.responseHeaders.MatchString(name) {
			base.Protect(request, name)
			request[name] = slices.Clone(values)
		}
	}
}

// cookies returns the Set-Cookie headers of the other server that the client gets.
func (f *forwardAuth) cookies(answer *http.Response) (cookies []string) {
	for _, line := range answer.Header["Set-Cookie"] {
		if f.isAuthCookie(line) {
			cookies = append(cookies, line)
		}
	}
	return cookies
}

func (f *forwardAuth) isAuthCookie(line string) bool {
	cookie, err := http.ParseSetCookie(line)
	return err == nil && slices.Contains(f.AddAuthCookiesToResponse, cookie.Name)
}

// setCookies adds cookies to a response. They replace the server's of the same names.
func (f *forwardAuth) setCookies(h http.Header, cookies []string) {
	h["Set-Cookie"] = append(slices.DeleteFunc(h["Set-Cookie"], f.isAuthCookie), cookies...)
}
