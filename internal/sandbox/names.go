package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Names are the container engines' names of the networks of one driver, and of
// the containers in them.
type Names struct {
	// Networks maps the IDs of networks to names, and Containers the IDs of
	// endpoints to names.
	Networks, Containers map[string]string
}

// Names asks all engines for the names. It ignores engines that do not answer.
func (f Finder) Names(ctx context.Context, driver string) Names {
	n := Names{map[string]string{}, map[string]string{}}
	for _, socket := range f.Engines {
		var all []struct{ ID string }
		filter := url.QueryEscape(fmt.Sprintf(`{"driver":[%q]}`, driver))
		if ask(ctx, socket, "/networks?filters="+filter, &all) != nil {
			continue
		}
		for _, network := range all {
			n.add(ctx, socket, network.ID)
		}
	}
	return n
}

// add asks an engine for the containers of a network, and adds the names.
func (n Names) add(ctx context.Context, socket, id string) {
	var network struct {
		Name       string
		Containers map[string]struct{ Name, EndpointID string }
	}
	if ask(ctx, socket, "/networks/"+url.PathEscape(id), &network) != nil {
		return // the network was removed meanwhile
	}
	n.Networks[id] = network.Name
	for _, c := range network.Containers {
		n.Containers[c.EndpointID] = c.Name
	}
}

// ContainerOf returns the name of the running container that has an endpoint. It
// is empty if the engine knows none or does not answer while ctx lasts. Like
// Labelled, it does not wait for a container that is being started, so that it
// can be called while the engine waits for the caller.
func (e Engine) ContainerOf(ctx context.Context, endpoint string) string {
	var all []struct {
		Names           []string
		NetworkSettings struct {
			Networks map[string]struct{ EndpointID string }
		}
	}
	if ask(ctx, string(e), "/containers/json", &all) != nil {
		return ""
	}
	for _, c := range all {
		for _, n := range c.NetworkSettings.Networks {
			if n.EndpointID == endpoint && len(c.Names) > 0 {
				return strings.TrimPrefix(c.Names[0], "/")
			}
		}
	}
	return ""
}

// ask sends a request to an engine and decodes the JSON answer.
func ask(ctx context.Context, socket, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := get(ctx, socket, path)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return refusal(answer)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
