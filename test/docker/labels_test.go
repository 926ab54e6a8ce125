package docker_test

import "strings"

// labelled publishes containers on the host's network through their labels.
func (h *host) labelled() {
	before := h.inventory()
	run := func(name, publish string, more ...string) {
		h.Helper()
		args := append([]string{"run", "-d", "--name", name, "--network", "host", "--label", "fairlead.publish=" +
			publish}, more...)
		h.docker(append(args, "program", "serve", "udp:53", "tcp:80")...)
	}
	both := func(first, second string) {
		h.Helper()
		for _, at := range []string{first, second} {
			h.answersAt(at)
		}
	}
	// Both containers bind port 80 at the same time, and port 80 stays free on the host. If this host is so busy that a
	// container binds its ports first, it is restarted by its policy, as documented.
	restarts := []string{"--restart", "unless-stopped"}
	run("one", "8080:80,8080:53/udp", restarts...)
	run("two", "8081:80, 8081:53/udp", append(restarts, "--label", "fairlead.unpublished=deny")...)
	both("8080", "8081")
	h.refused(lan, "tcp", hostAddr+":80")
	h.areUp("one", "two")
	for _, command := range []string{"ports", "stats", "network ls", "ls -o json"} {
		h.sh(h.dir + "/fairlead " + command)
	}

	// A restart of a container restores its ports; a restart of the daemon
	// keeps them.
	h.docker("restart", "-t", "0", "one")
	both("8080", "8081")
	h.kill()
	both("8080", "8081")
	h.start()

	// A container whose ports cannot be published still runs, and the reason is reported.
	run("third", "8080:80")
	h.says("third", "port taken")
	h.docker("rm", "-f", "third")
	h.docker("restart", "-t", "0", "two")
	both("8080", "8081")
	h.areUp("one", "two")
	run("wrong", "80")
	h.says("wrong", "fairlead.publish")
	if out := h.sh(h.dir + "/fairlead ports 2>&1"); !strings.Contains(out, "not published: container:wrong: ") {
		h.Errorf("ports does not show the label's failure:\n%s", out)
	}
	h.docker("rm", "-f", "wrong", "one")
	run("again", "8080:80,8080:53/udp", restarts...)
	both("8080", "8081")
	h.areUp("again", "two")
	h.docker("rm", "-f", "again", "two")

	h.ran(run)
	h.eventually("! " + h.dir + "/fairlead ls -o json | grep -q docker")
	h.unchanged(before)
}

// ran tests containers that run before their ports are mapped.
func (h *host) ran(run func(name, publish string, more ...string)) {
	h.Helper()
	// A container that has already bound its ports keeps them.
	h.kill()
	run("early", "8082:80")
	h.asks("", "tcp", "127.0.0.1:80")
	h.start()
	h.says("early", "restart it")
	h.docker("restart", "-t", "0", "early")
	h.asks(lan, "tcp", hostAddr+":8082")
	h.areUp("early")
	h.docker("rm", "-f", "early")

	// The ports of a container that has not bound any yet, because its cgroup is in a new location,
	// are mapped.
	h.sh("mkfifo /run/go")
	h.docker("run", "-d", "--name", "apart", "--network", "host", "--label", "fairlead.publish=8082:80",
		"--cgroup-parent", "/apart",
		"-v", "/run/go:/go", "program", "serve", "after:/go", "tcp:80")
	h.eventually(h.dir + "/fairlead ls | grep -q 'container:apart.* up$'")
	h.sh("echo > /run/go")
	h.asks(lan, "tcp", hostAddr+":8082")
	h.areUp("apart")
	h.docker("rm", "-f", "apart")
	h.sh("rm /run/go")
}

// eventually waits until a command on the host succeeds.
func (h *host) eventually(command string) {
	h.Helper()
	h.sh("for i in $(seq 300); do " + command + " && exit; sleep 0.1; done; " + h.dir + "/fairlead ls; exit 1")
}

// answersAt sends requests to a workload at a host port, via every protocol and family.
func (h *host) answersAt(port string) {
	h.Helper()
	for _, network := range []string{"tcp", "udp"} {
		h.asks("", network, "127.0.0.1:"+port)
		if from := h.asks(lan, network, hostAddr+":"+port); from != lanAddr {
			h.Errorf("%s to port %s: the server sees the LAN as %s", network, port, from)
		}
		if from := h.asks(lan, network, "["+hostAddr6+"]:"+port); from != lanAddr6 {
			h.Errorf("%s to port %s: the server sees the LAN as %s", network, port, from)
		}
	}
}

// says waits until the attachment of a container has a problem that contains the words, and fails
// the test unless the container runs.
func (h *host) says(name, words string) {
	h.Helper()
	h.eventually(h.dir + "/fairlead ls | grep -q 'container:" + name + ".*" + words + "'")
	if state := h.docker("inspect", "-f", "{{.State.Status}}", name); state != "running" {
		h.Errorf("%s is %s", name, state)
	}
}

// areUp fails the test unless the attachments of the containers are up, without a problem.
func (h *host) areUp(names ...string) {
	h.Helper()
	list := h.sh(h.dir + "/fairlead ls")
	for _, name := range names {
		for line := range strings.Lines(list) {
			if strings.Contains(line, "container:"+name) && !strings.Contains(line, "restart it") &&
				!strings.Contains(line, "failed") {
				name = ""
			}
		}
		if name != "" {
			h.Errorf("container %s is not up or has a problem:\n%s", name, list)
		}
	}
}
