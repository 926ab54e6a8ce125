package view

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Add adds the paths of the API to a mux. raw returns the objects of the present
// configuration.
func Add(mux *http.ServeMux, static Static, raw func() RawData) {
	Show(mux, "/api/rawdata", func() any { return raw() })
	Show(mux, "/api/overview", func() any { return OverviewOf(static, raw()) })
	Show(mux, "/api/version", func() any { return static.version() })
	Show(mux, "/api/certificates", func() any { return raw().Certificates })
	list(mux, "/api/entrypoints", func() map[string]EntryPoint { return static.entryPoints() })
	list(mux, "/api/http/routers", func() map[string]Router { return raw().Routers })
	list(mux, "/api/http/services", func() map[string]Service { return raw().Services })
	list(mux, "/api/http/middlewares", func() map[string]Middleware { return raw().Middlewares })
	list(mux, "/api/tcp/routers", func() map[string]Router { return raw().TCPRouters })
	list(mux, "/api/tcp/services", func() map[string]Service { return raw().TCPServices })
	list(mux, "/api/tcp/middlewares", func() map[string]Middleware { return raw().TCPMiddlewares })
	list(mux, "/api/udp/routers", func() map[string]Router { return raw().UDPRouters })
	list(mux, "/api/udp/services", func() map[string]Service { return raw().UDPServices })
}

// Show adds a path that answers with a value.
func Show(mux *http.ServeMux, path string, value func() any) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, value()) })
}

func answer(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the client may be gone
}

// found is an object of a list.
type found interface {
	matches(search, status string) bool
}

// matches reports whether the name has the text and the status is the given one. Empty
// criteria match.
func (i Info) matches(search, status string) bool {
	return strings.Contains(strings.ToLower(i.Name), strings.ToLower(search)) &&
		(status == "" || strings.EqualFold(status, i.Status))
}

func (r Router) matches(search, status string) bool {
	return r.Info.matches(search, status) ||
		r.Info.matches("", status) && strings.Contains(strings.ToLower(r.Rule), strings.ToLower(search))
}

// list adds a path that lists objects by name, and below it one path per object.
func list[T found](mux *http.ServeMux, path string, all func() map[string]T) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		objects := all()
		chosen := []T{}
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if o := objects[name]; o.matches(q.Get("search"), q.Get("status")) {
				chosen = append(chosen, o)
			}
		}
		from, to, next, err := page(len(chosen), q.Get("page"), q.Get("per_page"))
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		w.Header().Set("X-Next-Page", strconv.Itoa(next))
		answer(w, http.StatusOK, chosen[from:to])
	})
	mux.HandleFunc("GET "+path+"/{name...}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if o, ok := all()[name]; ok {
			answer(w, http.StatusOK, o)
			return
		}
		refuse(w, http.StatusNotFound, fmt.Sprintf("%s does not exist", name))
	})
}

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"message": text})
}

// page returns the part of a list of objects that a request wants, and the number of the next
// page, 1 after the last one. Traefik's pages have 100 objects; here, a request without
// parameters gets all.
func page(count int, number, size string) (from, to, next int, err error) {
	if number == "" && size == "" {
		return 0, count, 1, nil
	}
	at, per := 1, 100
	for _, p := range []struct {
		text string
		to   *int
		name string
	}{{number, &at, "page"}, {size, &per, "per_page"}} {
		if p.text == "" {
			continue
		}
		n, err := strconv.Atoi(p.text)
		if err != nil || n < 1 {
			return 0, 0, 0, fmt.Errorf("%s=%s: want a number from 1", p.name, p.text)
		}
		*p.to = n
	}
	if at > 1 && at-1 > (count-1)/per || count == 0 && at > 1 {
		return 0, 0, 0, fmt.Errorf("page=%d: there are %d objects, %d on each page", at, count, per)
	}
	if from = (at - 1) * per; count-from > per {
		return from, from + per, at + 1, nil
	}
	return from, count, 1, nil
}
