package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/gateway/middleware"
	"fairlead/internal/model/gateway"
)

// answer responds with the status in the path, with a body that is streamed.
func answer(w http.ResponseWriter, r *http.Request) {
	code, _ := strconv.Atoi(r.URL.Path[1:])
	w.Header().Set("X-From", "server")
	r.Header.Set("X-Changed", "by a later middleware")
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(code)
	fmt.Fprint(w, "server ")
	_ = http.NewResponseController(w).Flush()
	_, _ = io.Copy(w, strings.NewReader("answer"))
}

func TestErrorPages(t *testing.T) {
	pages := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-From", "pages")
		echo("Host", "X-A", "X-B", "X-Changed", "If-None-Match", "Content-Type").ServeHTTP(w, r)
	})
	deps := middleware.Deps{Service: func(name string) (http.Handler, error) {
		if name != "pages" {
			return nil, errors.New("it does not exist")
		}
		return pages, nil
	}}
	value := gateway.Errors{Status: []string{"500-599", "404,418"}, Service: "pages",
		Query: "/{status}-{originalStatus}.html?u={url}", ErrorRequestHeaders: []string{"x-a"},
		StatusRewrites: map[string]int{"418": 404, "500-599": 500, "504": 502}}
	server := serve(t, build(t, gateway.Middleware{Errors: &value}, deps)(http.HandlerFunc(answer)))
	from := func(who string) map[string]string { return map[string]string{"X-From": who} }
	for _, r := range []request{
		{name: "accepted", target: "/200", want: "server answer", wantHeader: from("server")},
		{name: "not listed", target: "/403", status: 403, want: "server answer", wantHeader: from("server")},
		{name: "listed", target: "/404", method: "POST", body: "secret", host: "a.example", status: 404,
			header: map[string]string{"X-A": "1", "X-B": "2", "If-None-Match": `"x"`, "Content-Type": "a/b"},
			want: "GET /404-404.html?u=http%3A%2F%2Fa.example%2F404 Host=a.example X-A=1 X-B= X-Changed= " +
				"If-None-Match= Content-Type=", wantHeader: from("pages")},
		{name: "rewritten", target: "/418", host: "a", status: 404,
			want: "GET /404-418.html?u=http%3A%2F%2Fa%2F418 Host=a X-A= X-B= X-Changed= If-None-Match= Content-Type="},
		{name: "rewritten range", target: "/503", status: 500},
		{name: "narrowest", target: "/504", status: 502},
	} {
		t.Run(r.name, func(t *testing.T) { r.check(t, server.URL) })
	}
	for want, value := range map[string]gateway.Errors{
		`read status "5xx"`:     {Status: []string{"5xx"}, Service: "pages"},
		`read status "599-500"`: {Status: []string{"599-500"}, Service: "pages"},
		`use service "none"`:    {Status: []string{"500"}, Service: "none"},
		"rewrite status 404 to 999": {Status: []string{"500"}, Service: "pages",
			StatusRewrites: map[string]int{"404": 999}},
	} {
		_, err := middleware.New("test", &gateway.Middleware{Errors: &value}, deps)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestContentType(t *testing.T) {
	off := false
	html := "<!DOCTYPE html><p>"
	noType := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/typed":
			w.Header().Set("Content-Type", "text/css")
		case "/encoded":
			w.Header()["Content-Type"] = nil
			w.Header().Set("Content-Encoding", "x")
		case "/empty":
			w.WriteHeader(http.StatusNoContent)
			return
		}
		respond(201, html).ServeHTTP(w, r)
	})
	// As a gateway that detects no types by default does.
	plain := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			next.ServeHTTP(w, r)
		})
	}
	kind := func(text string) map[string]string { return map[string]string{"Content-Type": text} }
	wrap := build(t, gateway.Middleware{ContentType: &gateway.ContentType{}}, middleware.Deps{})
	server := serve(t, plain(wrap(noType)))
	for _, r := range []request{
		{name: "detected", status: 201, want: html, wantHeader: kind("text/html; charset=utf-8")},
		{name: "typed", target: "/typed", status: 201, want: html, wantHeader: kind("text/css")},
		{name: "encoded", target: "/encoded", status: 201, want: html, wantHeader: kind("")},
		{name: "empty", target: "/empty", status: 204, wantHeader: kind("")},
	} {
		t.Run(r.name, func(t *testing.T) { r.check(t, server.URL) })
	}
	run(t, gateway.Middleware{ContentType: &gateway.ContentType{AutoDetect: &off}}, noType,
		[]request{{name: "off", status: 201, want: html, wantHeader: kind("")}})
}
