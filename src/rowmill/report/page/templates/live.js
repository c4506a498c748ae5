"use strict";
// Brings the page up to date: parts that changed are replaced, what is open stays open, and so does the focus.
(() => {
  const EVERY_MS = 2000, QUIET_MS = 15000;
  const PARTS = "#state, section[id]";
  const last = new Map();
  for (const part of document.querySelectorAll(PARTS)) last.set(part.id, part.innerHTML);

  const FOCUSABLE = "summary, [tabindex], a";
  const replace = (old, html) => {
    const open = [...old.querySelectorAll("details")].map((one) => one.open);
    const scrolled = [...old.querySelectorAll(".scroll, pre")].map((one) => [one.scrollTop, one.scrollLeft]);
    const focused = [...old.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
    old.innerHTML = html;
    old.querySelectorAll("details").forEach((one, i) => { one.open = Boolean(open[i]); });
    old.querySelectorAll(".scroll, pre").forEach((one, i) => {
      if (scrolled[i]) [one.scrollTop, one.scrollLeft] = scrolled[i];
    });
    if (focused >= 0) {
      const again = old.querySelectorAll(FOCUSABLE)[focused];
      if (again) again.focus({ preventScroll: true });
    }
  };

  const say = (text) => {
    const live = document.getElementById("live");
    if (live.textContent !== text) live.textContent = text;
  };

  const take = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    for (const found of page.querySelectorAll(PARTS)) {
      const old = document.getElementById(found.id);
      if (old && last.get(found.id) !== found.innerHTML) {
        last.set(found.id, found.innerHTML);
        replace(old, found.innerHTML);
      }
    }
    document.documentElement.dataset.looks = String(Number(document.documentElement.dataset.looks || 0) + 1);
  };

  const look = async () => {
    let wait = document.hidden ? QUIET_MS : EVERY_MS;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.ok) { take(await answer.text()); say(""); } else { say((await answer.text()).trim()); }
    } catch {
      say("rowmill watch has ended; this page stands still.");
      wait = QUIET_MS;
    }
    setTimeout(look, wait);
  };
  setTimeout(look, EVERY_MS);
})();
