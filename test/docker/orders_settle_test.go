package docker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settled waits until the host's state matches the model.
func (o *orders) settled() {
	o.awaitDocker()
	for _, c := range o.all {
		if c.stopped {
			o.until("it stops", c, func() bool { return !o.running(c) })
			o.free(c)
		}
		if why := o.docker("inspect", "-f", "{{.State.Error}}", c.name); strings.Contains(why, "allocated") {
			o.Errorf("after %v: %s: %s", o.taken, c.name, why)
		}
		if c.stopped || c.missed && !o.running(c) {
			o.startAgain(c)
		}
		c.stopped, c.missed = false, false
	}
	for _, c := range o.all {
		o.until("it runs and answers", c, func() bool {
			if o.lost(c, nil) {
				o.replace(c)
			}
			return o.running(c) && o.answers(c)
		})
	}
	o.until("every endpoint belongs to a running container", o.all[0],
		func() bool { return slices.Equal(o.endpoints(), o.containers()) })
}

// startAgain starts a container that dockerd need not restart by its restart policy.
func (o *orders) startAgain(c *ordered) {
	_, err := o.Run(o.Context(), "start", c.name)
	switch {
	case o.lost(c, err):
		o.replace(c)
	case err != nil:
		o.Fatalf("after %v: %v", o.taken, err)
	}
}

// lost reports whether dockerd itself cannot start a container again, on any network, so that a
// user has to replace it. The test then only checks that the new container is reachable, and that
// no endpoint of the old one is left. dockerd has two such faults:
//
//   - dockerd was killed while the container ended: containerd keeps its task, and
//     every start fails (moby/moby issues 36145 and 40613).
//   - dockerd was ended while the container waited for its restart: the next one
//     shows it as "restarting" without a process and without endpoints, does not
//     start it, and takes `docker start` as done (moby/moby issue 47554).
func (o *orders) lost(c *ordered, failure error) bool {
	fields := strings.SplitN(o.docker("inspect", "-f",
		"{{.State.Running}} {{.State.Restarting}} {{.State.FinishedAt}} {{.State.Error}}", c.name), " ", 4)
	if fields[0] == "true" && fields[1] == "false" {
		return false
	}
	why := fields[3]
	if failure != nil {
		why += failure.Error()
	}
	finished, err := time.Parse(time.RFC3339Nano, fields[2])
	if err != nil {
		o.Fatal(err)
	}
	return fields[1] == "true" && finished.Before(o.dockerBegun) ||
		strings.Contains(why, "task ") && strings.Contains(why, "already exists") ||
		strings.Contains(why, "id already in use")
}

func (o *orders) replace(c *ordered) {
	o.Logf("after %v: dockerd cannot start %s again: replaced", o.taken, c.name)
	o.docker("rm", "-f", c.name)
	o.run(c)
}

func (o *orders) until(what string, c *ordered, is func() bool) {
	o.Helper()
	for end, seen := time.Now().Add(ordersTimeout), ""; !is(); {
		if now := o.activity(); now != seen {
			end, seen = time.Now().Add(ordersTimeout), now
		}
		if time.Now().After(end) {
			o.Fatalf("after %v, live-restore %t: %s: timeout while waiting until %s: %s\n%v, containers %v\n%s\nthe daemon's output:\n%s", o.taken, o.restore, c.name, what,
				o.activity(), o.endpoints(), o.containers(), o.sh(o.dir+"/fairlead ls"),
				strings.Join(o.said.lines()[o.lines:], ""))
		}
	}
}

// activity returns what changes while dockerd or the daemon is busy: dockerd's log, and the states,
// endpoints and addresses of the containers.
func (o *orders) activity() string {
	args := []string{"inspect", "-f", "{{.Name}} {{json .State}} {{.RestartCount}} {{json .NetworkSettings}}"}
	for _, c := range o.all {
		args = append(args, c.name)
	}
	return o.docker(args...) + "\n" + o.Engine.Log()
}

func (o *orders) running(c *ordered) bool {
	return o.docker("inspect", "-f", "{{.State.Running}} {{.State.Restarting}}", c.name) == "true false"
}

// answers reports whether the container answers at its published port.
func (o *orders) answers(c *ordered) bool {
	out, err := o.Command(o.Context(), "sh", "-ec",
		fmt.Sprintf("timeout 5 %s %s/program ask tcp %s:%d", lan, o.dir, hostAddr, c.port)).CombinedOutput()
	return err == nil && strings.TrimSpace(string(out)) == c.name
}

// free fails the test if `fairlead ports` shows the port of a container that does not run.
func (o *orders) free(c *ordered) {
	if out, err := o.Command(o.Context(), o.dir+"/fairlead", "ports",
		strconv.Itoa(c.port)).CombinedOutput(); err == nil {
		o.Errorf("after %v: %s does not run, but its port is shown:\n%s", o.taken, c.name, out)
	}
}

// endpoints returns the names of the daemon's endpoints.
func (o *orders) endpoints() []string {
	var list struct{ Attachments []struct{ Name string } }
	if err := json.Unmarshal([]byte(o.sh(o.dir+"/fairlead ls -o json")), &list); err != nil {
		o.Fatal(err)
	}
	var names []string
	for _, a := range list.Attachments {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

// containers returns the endpoint names that the containers must have.
func (o *orders) containers() []string {
	var names []string
	for _, c := range o.all {
		id := o.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.EndpointID}}{{end}}", c.name)
		names = append(names, "docker-"+id[:min(12, len(id))]) // a container that does not run has no endpoint ID
	}
	slices.Sort(names)
	return names
}
