// Package firewall runs Fairlead on hosts that ufw and firewalld protect. It has
// tests only.
package firewall
