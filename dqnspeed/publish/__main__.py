from dqnspeed.publish import main

if __name__ == "__main__":
    main()
