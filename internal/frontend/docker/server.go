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
	"strings"

	"fairlead/internal/dockerapi"
)

// contentType is the content type of responses.
const contentType = "application/vnd.docker.plugins.v1.2+json"

// method handles a call. It gets the request's JSON, and returns the value to write
// as JSON.
type method func(context.Context, []byte) (any, error)

// call returns a method that decodes its request for fn. Returns *malformed if the
// request is not valid JSON.
func call[Request any](fn func(context.Context, Request) (any, error)) method {
	return func(ctx context.Context, body []byte) (any, error) {
		var r Request
		if len(body) > 0 { // a call without parameters has no body
			if err := json.Unmarshal(body, &r); err != nil {
				return nil, &malformed{err}
			}
		}
		return fn(ctx, r)
	}
}

// malformed is the error of a request that cannot be decoded.
type malformed struct{ cause error }

func (m *malformed) Error() string { return "read request: " + m.cause.Error() }
func (m *malformed) Unwrap() error { return m.cause }

// same returns a method that gives every call the same answer.
func same(answer any) method {
	return func(context.Context, []byte) (any, error) { return answer, nil }
}

// methods returns the methods by the paths of their calls.
func (d *Driver) methods() map[string]method {
	all := map[string]method{
		"Plugin.Activate": d.activate,
		"NetworkDriver.GetCapabilities": same(networkCapabilities{Scope: "local", ConnectivityScope: "local",
			GwAllocChecker: true}),
		"NetworkDriver.GwAllocCheck":  call(d.gwAllocCheck),
		"NetworkDriver.CreateNetwork": call(d.createNetwork),
		"NetworkDriver.DeleteNetwork": call(d.deleteNetwork),
		// The next four are for networks of global scope only.
		"NetworkDriver.AllocateNetwork":             same(nothing{}),
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

// Handler returns the handler of Docker's calls. It does not check the caller's
// credentials.
func (d *Driver) Handler() http.Handler {
	methods := d.methods()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, known := methods[r.URL.Path[min(1, len(r.URL.Path)):]]
		switch {
		case !known:
			refuse(w, http.StatusNotFound, fmt.Errorf("call %.64q: this driver has no such method", r.URL.Path))
			return
		case r.Method != http.MethodPost:
			refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("HTTP method %.16q: want POST", r.Method))
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

// answer calls the method and writes its result. The error of a method is written
// with status 200, as Docker expects.
func (d *Driver) answer(w http.ResponseWriter, r *http.Request, m method, body []byte) {
	result, err := m(dockerapi.Answering(r.Context()), body)
	switch {
	case errors.As(err, new(*malformed)):
		refuse(w, http.StatusBadRequest, err)
	case err != nil:
		d.cfg.Log.Warn("Docker's call failed", "call", r.URL.Path[1:], "error", err)
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
	_ = json.NewEncoder(w).Encode(v) // the client may have closed the connection
}

// identity matches Docker's IDs that can be used in names.
var identity = regexp.MustCompile(`^[0-9a-zA-Z_.-]+$`)

// maxIdentity is the length of the longest one.
const maxIdentity = 128

// short is the number of characters of an ID in names, as in Docker's output.
const short = 12

// named makes a name from an ID.
func named(prefix, id string) (string, error) {
	if len(id) > maxIdentity || !identity.MatchString(id) {
		return "", fmt.Errorf("ID %.150q: want letters, digits, underscores, dots and dashes", id)
	}
	return prefix + id[:min(short, len(id))], nil
}

// NetworkName returns the model's name for the Docker network with that ID. It
// returns an error if the ID has characters that names must not have.
func NetworkName(id string) (string, error) { return named("docker-", id) }

// NetworkID returns the beginning of the ID of the Docker network that the model gives the name. Docker's commands
// accept it.
func NetworkID(name string) string { return strings.TrimPrefix(name, "docker-") }

// EndpointName returns the model's name for the Docker endpoint with that ID. It
// returns an error if the ID has characters that names must not have.
func EndpointName(id string) (string, error) { return named("docker-", id) }

// linkName returns the name of the link's end that Docker moves into the sandbox.
func linkName(id string) (string, error) { return named("fd-", id) }
