// Package traefik turns Traefik's dynamic configuration (labels of containers, files) into the
// values of internal/model/gateway. It reads no socket and starts nothing: it only reads the
// files that its caller names. Package static reads the settings with which Traefik starts,
// and package tree parses all forms.
package traefik
