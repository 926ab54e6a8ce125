package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
)

// contentType is that of answers.
const contentType = "application/vnd.docker.plugins.v1.2+json"

// method answers a call: the body's JSON in, a value to be written as JSON out.
type method func(context.Context, []byte) (any, error)

// call makes a method of a function that takes its request as a value.
func call[Request any](fn func(context.Context, Request) (any, error)) method {
	return func(ctx context.Context, body []byte) (any, error) {
		var r Request
		if len(body) > 0 { // a call without a payload has none
			if err := json.Unmarshal(body, &r); err != nil {
				return nil, &malformed{err}
			}
		}
		return fn(ctx, r)
	}
}

// malformed says that a request is none.
type malformed struct{ cause error }

func (m *malformed) Error() string { return "read request: " + m.cause.Error() }
func (m *malformed) Unwrap() error { return m.cause }

// same answers every call alike.
func same(answer any) method {
	return func(context.Context, []byte) (any, error) { return answer, nil }
}

// methods are the calls that are answered, by their paths.
func (d *Driver) methods() map[string]method {
	all := map[string]method{
		"Plugin.Activate":                           d.activate,
		"NetworkDriver.GetCapabilities":             same(networkCapabilities{Scope: "local", ConnectivityScope: "local", GwAllocChecker: true}),
		"NetworkDriver.GwAllocCheck":                call(d.gwAllocCheck),
		"NetworkDriver.CreateNetwork":               call(d.createNetwork),
		"NetworkDriver.DeleteNetwork":               call(d.deleteNetwork),
		"NetworkDriver.AllocateNetwork":             same(nothing{}), // of a global scope, as are the next three
		"NetworkDriver.FreeNetwork":                 same(nothing{}),
		"NetworkDriver.DiscoverNew":                 same(nothing{}),
		"NetworkDriver.DiscoverDelete":              same(nothing{}),
		"NetworkDriver.CreateEndpoint":              call(d.createEndpoint),
		"NetworkDriver.EndpointOperInfo":            same(operInfo{Value: map[string]any{}}),
		"NetworkDriver.DeleteEndpoint":              call(d.deleteEndpoint),
		"NetworkDriver.Join":                        call(d.join),
		"NetworkDriver.Leave":                       call(d.leave),
		"NetworkDriver.ProgramExternalConnectivity": call(d.program),
		"NetworkDriver.RevokeExternalConnectivity":  call(d.revoke),
	}
	maps.Copy(all, d.ipamMethods())
	return all
}

// Handler answers Docker's calls, whoever makes them.
func (d *Driver) Handler() http.Handler {
	methods := d.methods()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, known := methods[r.URL.Path[min(1, len(r.URL.Path)):]]
		switch {
		case !known:
			refuse(w, http.StatusNotFound, fmt.Errorf("%.64q: this driver has no such method", r.URL.Path))
			return
		case r.Method != http.MethodPost:
			refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("%.16q: want POST", r.Method))
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			status := http.StatusBadRequest
			if errors.As(err, new(*http.MaxBytesError)) {
				status = http.StatusRequestEntityTooLarge
			}
			refuse(w, status, err)
			return
		}
		d.answer(w, r, m, body)
	})
}

// answer calls the method. A failure of what was asked for is an answer, too.
func (d *Driver) answer(w http.ResponseWriter, r *http.Request, m method, body []byte) {
	result, err := m(r.Context(), body)
	switch {
	case errors.As(err, new(*malformed)):
		refuse(w, http.StatusBadRequest, err)
	case err != nil:
		d.cfg.Log.Warn("refused Docker", "call", r.URL.Path[1:], "error", err)
		write(w, http.StatusOK, failure{err.Error(), err.Error()})
	default:
		write(w, http.StatusOK, result)
	}
}

func refuse(w http.ResponseWriter, status int, err error) {
	write(w, status, failure{err.Error(), err.Error()})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller may be gone
}

// identity is what Docker's ids look like, for what becomes part of names.
var identity = regexp.MustCompile(`^[0-9a-zA-Z_.-]{1,128}$`)

// short is how much of an id names are made of, as in what Docker prints.
const short = 12

// named makes a name of an id.
func named(prefix, id string) (string, error) {
	if !identity.MatchString(id) {
		return "", fmt.Errorf("id %.150q: want letters, digits, underscores, dots and dashes", id)
	}
	return prefix + id[:min(short, len(id))], nil
}

// NetworkName returns what a network of Docker's is called in the model.
func NetworkName(id string) (string, error) { return named("docker-", id) }

// EndpointName returns what an endpoint of Docker's is called in the model.
func EndpointName(id string) (string, error) { return named("docker-", id) }

// linkName is that of the end of a link which Docker takes.
func linkName(id string) (string, error) { return named("fd-", id) }
