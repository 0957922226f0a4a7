"""How tests start a JVM: short lives, so cheap starts matter more than fast code."""

CHEAP_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
